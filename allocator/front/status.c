// SPDX-License-Identifier: Apache-2.0
// Names and sentences of berm_status_t, and the version. Public functions of include/berm.h that
// need nothing of a running instance: they work before the start, after the end and after fork().
//
// S1  row i of the table is about status i (test_status.c; the count is checked when compiled)
//
// Constant data. Locks: none. Cannot fail.
#include "berm.h"

#include "base/defs.h"

typedef struct status_row {
    berm_status_t status;
    const char *name;
    const char *text;
} status_row_t;

#define ROW(status, text)                                                                          \
    { status, #status, text }

static const status_row_t status_rows[] = {
    ROW(BERM_OK, "The call succeeded: there is nothing to do."),
    ROW(BERM_ERROR_ARGUMENT,
        "An argument is null or out of its range: check the call against berm.h."),
    ROW(BERM_ERROR_SIZE_ZERO, "A request of 0 bytes was made: ask for at least 1 byte."),
    ROW(BERM_ERROR_SIZE_TOO_LARGE,
        "The request is larger than any device's addresses: check the size for an overflow."),
    ROW(BERM_ERROR_ALIGNMENT,
        "The alignment is no power of two or above 2^32: pass a power of two up to 2^32."),
    ROW(BERM_ERROR_DEVICE,
        "There is no such device: pass an ordinal from 0 to berm_device_count() - 1."),
    ROW(BERM_ERROR_ADDRESS_UNKNOWN,
        "berm did not hand this address out: free it with the allocator that it came from."),
    ROW(BERM_ERROR_ADDRESS_INTERIOR,
        "The address is inside a block: pass its start, which berm_whatis tells."),
    ROW(BERM_ERROR_ADDRESS_OTHER_DEVICE,
        "The block is on another device than the one named: name its own, or BERM_DEVICE_ANY."),
    ROW(BERM_ERROR_DOUBLE_FREE,
        "The block was freed already: find its second owner, and free it only once."),
    ROW(BERM_ERROR_OUT_OF_DEVICE_MEMORY,
        "The device has no more memory: free blocks, use smaller ones, or end what else uses it."),
    ROW(BERM_ERROR_LIMIT,
        "The limit set for the device is reached: free blocks, or raise it with berm_limit_set."),
    ROW(BERM_ERROR_OUT_OF_HOST_MEMORY,
        "There is no host memory for berm's own records: free host memory, or raise the limit of "
        "the process."),
    ROW(BERM_ERROR_OUT_OF_ADDRESSES,
        "No device addresses could be reserved: free large blocks, or use fewer streams."),
    ROW(BERM_ERROR_CEILING,
        "The driver's number of mappings, handles or files is used up: raise the option "
        "growth_handle or the process's file limit."),
    ROW(BERM_ERROR_NO_DRIVER,
        "libcuda.so.1 is absent or sees no device: install the driver, or name one with the "
        "option driver."),
    ROW(BERM_ERROR_NO_VMM,
        "The driver or device lacks virtual memory management: update the driver, or use another "
        "device."),
    ROW(BERM_ERROR_DRIVER, "A driver call failed: berm_driver_error_last says which call and why."),
    ROW(BERM_ERROR_DEVICE_LOST,
        "The device's context is unusable after an earlier error or a reset: restart the process."),
    ROW(BERM_ERROR_SHUTDOWN, "berm was shut down: call berm_init to start it again."),
    ROW(BERM_ERROR_FORKED,
        "This is a child of fork(), where CUDA does not work: start the child with exec instead."),
    ROW(BERM_ERROR_STATE, "The call does not go with what was done before: berm_error_message says "
                          "what is in the way."),
    ROW(BERM_ERROR_OPTION_UNKNOWN,
        "There is no such option: `berm conf` and berm_option_info list them all."),
    ROW(BERM_ERROR_OPTION_VALUE,
        "The option does not take this value: `berm conf` shows the range of each option."),
    ROW(BERM_ERROR_VERSION,
        "The struct's size is unknown to this library: set its member size with the INIT macro, "
        "and compile against this library's headers."),
    ROW(BERM_ERROR_CORRUPTION,
        "An invariant does not hold: report berm_error_message, as this is a fault of berm or a "
        "stray write."),
    ROW(BERM_ERROR_UNSUPPORTED,
        "This build, driver or device lacks the feature: see berm_device_info_read, and do "
        "without it."),
    ROW(BERM_ERROR_NOT_EXPORTABLE,
        "The block has no handle of its own: allocate it from an exportable pool."),
    ROW(BERM_ERROR_ADDRESS_IMPORTED,
        "The address is another process's memory: end its use with berm_import_close."),
    ROW(BERM_ERROR_NOT_IMPORTED,
        "No open import begins at the address: pass what berm_import gave, once; berm_free frees "
        "blocks."),
    ROW(BERM_ERROR_IMPORT_FD,
        "The descriptor is no device memory that can be imported: pass one that berm_export made."),
    ROW(BERM_ERROR_IMPORT_SIZE,
        "The memory is smaller than the size given: pass the size that berm_export gave."),
    ROW(BERM_ERROR_PEER_ACCESS,
        "The device has no access to the other's memory: copy through the host, or use devices "
        "that are connected."),
    ROW(BERM_ERROR_PROTOCOL,
        "What came over the socket is no block of berm's: close it, and check who is at the other "
        "end and its version."),
    ROW(BERM_ERROR_DISCONNECTED,
        "The other end of the socket is closed: connect again, and send the block once more."),
    ROW(BERM_ERROR_SYSTEM, "A system call failed: berm_error_message says which and why."),
    ROW(BERM_ERROR_IPC_HANDLE,
        "The handle is of no memory that can be opened: pass one that berm_ipc_export made, of a "
        "process that still runs."),
    ROW(BERM_ERROR_IPC_OWN,
        "The handle was made in this process: use the block's own address here."),
    ROW(BERM_ERROR_POOL_UNKNOWN,
        "No pool in use has this id: make it with berm_pool_create or berm_pool_route_begin."),
    ROW(BERM_ERROR_CAPTURE,
        "A stream is being captured, which forbids this: call again when the capture has ended."),
    ROW(BERM_ERROR_NOT_RESIZABLE,
        "The block cannot grow: allocate it from a pool made with BERM_POOL_RESIZABLE."),
    ROW(BERM_ERROR_TAGS,
        "There are 255 tags with other names: use fewer names, which stay for the process's life."),
    ROW(BERM_ERROR_QUOTA,
        "The tag's quota stands in the way: free blocks that have the tag, or raise it with "
        "berm_quota_set."),
};

#undef ROW

_Static_assert(BERM_ARRAY_LENGTH(status_rows) == BERM_STATUS_COUNT, "one row for each status");

static const status_row_t status_unknown = {
    BERM_STATUS_COUNT, "BERM_STATUS_UNKNOWN",
    "The value is no status of this library: compile against this library's headers."};

static const status_row_t *status_row(berm_status_t status) {
    size_t index = (size_t)status; // a negative value becomes a large one
    return index < BERM_ARRAY_LENGTH(status_rows) ? &status_rows[index] : &status_unknown;
}

const char *berm_status_name(berm_status_t status) {
    return status_row(status)->name;
}

const char *berm_status_text(berm_status_t status) {
    return status_row(status)->text;
}

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

const char *berm_version(void) {
    return TEXT_OF(BERM_VERSION_MAJOR) "." TEXT_OF(BERM_VERSION_MINOR) "." TEXT_OF(
        BERM_VERSION_PATCH);
}
