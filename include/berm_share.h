// SPDX-License-Identifier: Apache-2.0
// berm: memory shared between processes and between devices. See berm.h for words and guarantees.
//
// EXAMPLE
//   process A                                    process B
//   berm_share_send(socket, block);              berm_share_receive(socket, 0, &addr, &size);
//   ...                                          ...launch kernels that use addr on stream...
//   berm_free(block, 0, stream);                 berm_import_close(addr, stream);
//
// WHAT CAN BE EXPORTED
//   A block that has a handle of its own: one from a pool made with BERM_POOL_EXPORTABLE. Its size
//   is rounded up to whole granules, and one cuMemCreate is behind all of it, so that no other
//   block's bytes are ever shown. A block of another pool gives BERM_ERROR_NOT_EXPORTABLE.
//
//   With the option shareable:on berm_share_send takes every block that is not plain, for processes
//   that trust each other: the receiver maps the pages that the block lies in, and sees, and could
//   write, what else lies in the first and the last of them. Nothing is kept back for it: the
//   receiver closes its import before the block is freed.
//
// LIFE OF SHARED MEMORY
//   The exporter frees its block when it likes, as any other. The handle of a block that was
//   exported is then given back to the driver, once the work that used it is done, and never serves
//   another block: whoever imported it, or still has the descriptor, keeps the memory, and sees
//   nothing that the exporter does later. Until then the block is neither moved nor counted as
//   obtainable. The memory itself lives until the last process has let go of it, one that is killed
//   included.
//
// ORDER BETWEEN PROCESSES
//   Streams of two processes have no order. Whoever hands a block on waits for the work that writes
//   it before it says so, or uses events that processes share (cuIpcGetEventHandle).
//
// WHAT IS COUNTED
//   What was imported is the exporter's: it is no part of reserved, the limit or the headroom of
//   this process, and stands in berm_stats_t as imports and imported_bytes. What was exported and
//   not freed is part of reserved, and stands there as exported_bytes. berm_whatis and snapshots
//   know imported addresses. berm_free of one gives BERM_ERROR_ADDRESS_IMPORTED.
//
// Errors called START ERRORS and DEVICE ERRORS are listed in berm.h.
#ifndef BERM_SHARE_H
#define BERM_SHARE_H

#include "berm.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------------
// By file descriptor
// ---------------------------------------------------------------------------------------------

// Makes a descriptor for the memory of a live block. *fd is a new one, close-on-exec, and the
// caller's to close; *size_bytes is what berm_import is to be told: the size of the block's handle,
// which is what was asked for, rounded up to whole granules. The block begins at its first byte. It
// may be exported again. On failure *fd is -1.
// Errors: ARGUMENT (a null pointer), ADDRESS_UNKNOWN, ADDRESS_INTERIOR, ADDRESS_IMPORTED,
// DOUBLE_FREE, NOT_EXPORTABLE, CEILING (no descriptor is left), DRIVER, DEVICE_LOST, UNSUPPORTED,
// SHUTDOWN, FORKED.
// Driver: yes. Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_export(berm_addr_t addr, int *fd, uint64_t *size_bytes);

// Maps the memory behind a descriptor of another process (or of this one) at addresses of its own,
// for use by `device` and, where the memory lies on `device`, by its peers (berm_peer_enable).
// `size_bytes` is what berm_export gave: a multiple of the granule, at most the size of the
// exporter's handle. `fd` stays the caller's, who may close it at once. The same memory can be
// imported more than once, at other addresses. On failure *addr is 0 and nothing is mapped.
// Errors: ARGUMENT (a null pointer, a negative descriptor, a size of 0 or not of whole granules),
// SIZE_TOO_LARGE, IMPORT_FD (the descriptor is no memory that the driver takes), IMPORT_SIZE (the
// driver does not map that many bytes of it), PEER_ACCESS (the memory is on a device that `device`
// has no access to), OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESSES, CEILING, OUT_OF_HOST_MEMORY, DEVICE,
// DRIVER, DEVICE_LOST, UNSUPPORTED, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: yes. Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_import(int fd, uint64_t size_bytes, int device,
                                                berm_addr_t *addr);

// Ends an import: waits for what `stream` has queued so far (BERM_STREAM_NONE: for all work of the
// import's device), then unmaps the memory, lets go of it and gives the addresses back. Work that
// uses it on other streams, or on other devices, is over by then, or ordered before `stream`.
// `addr` is what berm_import or berm_share_receive gave.
// After an error of the driver the call may be made again, and goes on where it stopped; then the
// memory may be unmapped already, and is not to be used. What is never closed is at berm_shutdown.
// Errors: NOT_IMPORTED (no open import begins there: it was closed, or is a block), CAPTURE (the
// stream, or with none one of the device, may be captured: nothing was done), DRIVER, DEVICE_LOST,
// SHUTDOWN, FORKED.
// Driver: yes. Waits: yes, without a lock of berm's. Streams: none.
BERM_API berm_status_t berm_import_close(berm_addr_t addr, berm_stream_t stream);

// ---------------------------------------------------------------------------------------------
// By socket
// ---------------------------------------------------------------------------------------------
//
// A UNIX socket that is connected, SOCK_STREAM or SOCK_SEQPACKET. One call sends one block, and one
// call receives it: a header of 96 bytes (magic, version, sizes, the device's UUID) and one
// descriptor; with shareable:on, a message of 24 bytes and a descriptor for each further handle.
// The other end need not be trusted: what is no such message gives BERM_ERROR_PROTOCOL, leaves no
// descriptor open and maps nothing; a stream is out of step then, and is to be closed. A socket
// that does not block is waited for; time limits set on it (SO_RCVTIMEO, SO_SNDTIMEO) hold, and
// give BERM_ERROR_SYSTEM. Two threads do not use one socket in one direction at once.

// Exports a block and sends it. The descriptor does not stay open here; until the other end has
// taken it the message itself keeps the memory.
// Errors: as berm_export, and DISCONNECTED, SYSTEM.
// Driver: yes. Waits: for the socket. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_share_send(int socket_fd, berm_addr_t addr);

// Whether berm_share_send would take the block now. Errors, driver, waits, streams: as berm_export.
BERM_API BERM_CHECKED berm_status_t berm_share_check(berm_addr_t addr);

// Receives a block and imports it, for use by `device` (BERM_DEVICE_ANY: the one it lies on, found
// by its UUID). *size_bytes (may be NULL) is the size that the sender asked for when it allocated
// the block. End with berm_import_close. On failure *addr is 0.
// Errors: as berm_import, and PROTOCOL, DISCONNECTED, SYSTEM; DEVICE also where this process does
// not see the device that the memory is on.
// Driver: yes. Waits: for the socket. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_share_receive(int socket_fd, int device, berm_addr_t *addr,
                                                       uint64_t *size_bytes);

// ---------------------------------------------------------------------------------------------
// By legacy IPC handle
// ---------------------------------------------------------------------------------------------
//
// For programs that pass the driver's 64-byte handles (cuIpcGetMemHandle, cudaIpcMemHandle_t), and
// for devices without virtual memory management. It works for plain memory only: all of it with the
// option backing:plain. A handle is for one cuMemAlloc of the driver, which holds many blocks: so
// an importer can reach its neighbours too, and a block is a handle and an offset.
//
// The exporter frees a block when it likes, and the memory may then serve its other blocks: whoever
// has it open must be told before. It does not go back to the driver before berm_shutdown, which
// must come after the last berm_ipc_close of any process.

#define BERM_IPC_HANDLE_BYTES 64

// Makes a handle for the memory of a live block, and says how far in it the block begins. Both are
// to be passed to the other process, as bytes. On failure they are 0.
// Errors: ARGUMENT (a null pointer), ADDRESS_UNKNOWN, ADDRESS_INTERIOR, ADDRESS_IMPORTED,
// DOUBLE_FREE, NOT_EXPORTABLE (no plain memory), DRIVER, DEVICE_LOST, UNSUPPORTED, SHUTDOWN,
// FORKED. Driver: yes. Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_ipc_export(berm_addr_t addr,
                                                    unsigned char handle[BERM_IPC_HANDLE_BYTES],
                                                    uint64_t *offset_bytes);

// Opens a handle of another process for use by `device`, and writes the address at `offset_bytes`
// in its memory, which is not checked. A handle may be opened more than once, with the same offset
// or others: the driver opens it once, and berm counts. On failure *addr is 0.
// Errors: ARGUMENT (a null pointer), IPC_HANDLE, IPC_OWN, DEVICE, OUT_OF_DEVICE_MEMORY,
// OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST, UNSUPPORTED, SHUTDOWN, FORKED, START ERRORS, DEVICE
// ERRORS.
// Driver: yes. Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_ipc_open(const unsigned char handle[BERM_IPC_HANDLE_BYTES],
                                                  int device, uint64_t offset_bytes,
                                                  berm_addr_t *addr);

// Ends one berm_ipc_open that gave `addr`; the last one of a handle closes it. Work that uses the
// memory on other devices than the one it was opened for is over. What is never closed is at
// berm_shutdown. After an error of the driver it stays open, and the call may be made again.
// Errors: NOT_IMPORTED (nothing open has the address), CAPTURE (the device cannot be waited for),
// DRIVER, DEVICE_LOST, SHUTDOWN, FORKED.
// Driver: when it closes the handle. Waits: for the device then. Streams: none.
BERM_API berm_status_t berm_ipc_close(berm_addr_t addr);

// ---------------------------------------------------------------------------------------------
// Peers
// ---------------------------------------------------------------------------------------------
//
// Memory of berm is not covered by cuCtxEnablePeerAccess: each mapping says which devices may use
// it. Enabling a peer gives it access to all that is mapped for a device, and to all that will be.
// Plain memory (option backing) is the other way round: cuCtxEnablePeerAccess covers it and these
// calls do not; on a device that has nothing else they give BERM_ERROR_UNSUPPORTED.
//
// A block that a peer's stream uses is freed as one that another stream uses: name that stream in
// berm_free, or in berm_record_stream before. A free that names no stream waits for the block's own
// device only.

// Lets kernels on `peer` use the memory of `device`, blocks that live and blocks to come. Enabling
// what is enabled does nothing. On failure nothing is enabled.
// Errors: ARGUMENT (a device is no peer of itself), DEVICE, PEER_ACCESS (the hardware has no way),
// OUT_OF_HOST_MEMORY, CEILING, DRIVER, DEVICE_LOST, UNSUPPORTED, SHUTDOWN, FORKED, START ERRORS,
// DEVICE ERRORS (of both devices).
// Driver: yes. Waits: for the work of `device` when it fails. Streams: none.
BERM_API berm_status_t berm_peer_enable(int device, int peer);

// Ends it. The caller queues no more work on `peer` that uses memory of `device`. Disabling what is
// not enabled does nothing. On failure the peer stays enabled, and the call may be made again.
// Errors: as berm_peer_enable, without PEER_ACCESS, and CAPTURE (of a stream of either device).
// Driver: yes. Waits: for all work queued on both devices. Streams: none.
BERM_API berm_status_t berm_peer_disable(int device, int peer);

#ifdef __cplusplus
}
#endif

#endif
