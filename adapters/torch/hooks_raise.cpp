// SPDX-License-Identifier: Apache-2.0
// How torch.OutOfMemoryError is raised without linking PyTorch: by the Itanium C++ ABI alone. The
// loaded libc10.so exports the type's identity (typeinfo) and the constructor that its own code
// calls; the runtime's __cxa_throw takes both. Nothing is assumed about what the object holds but
// that it fits in kExceptionRoom, and that it is a std::exception at its first byte, as c10::Error
// is by declaration.
#include "hooks_raise.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "berm_introspect.h"

namespace {

// c10::Error has some 200 bytes; the runtime hands out what is asked for.
constexpr std::size_t kExceptionRoom = 4096;

struct SourceLocation { // c10's, passed by value
    const char *function, *file;
    std::uint32_t line;
};

// A constructor is a function whose first argument is the object.
using Construct = void (*)(void *object, SourceLocation where, std::string text);

struct OutOfMemoryType {
    std::type_info *type = nullptr;
    Construct construct = nullptr;
};

// Again at each failure: PyTorch may be loaded later, and a failure is rare.
OutOfMemoryType type_find() {
    OutOfMemoryType found;
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
        return found;
    found.type = static_cast<std::type_info *>(dlsym(library, "_ZTIN3c1016OutOfMemoryErrorE"));
    found.construct = reinterpret_cast<Construct>(
        dlsym(library, "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_"
                       "stringIcSt11char_traitsIcESaIcEEE"));
    // The reference is kept, so that the type stays while an exception of it flies.
    return found;
}

void exception_destroy(void *object) {
    static_cast<std::exception *>(object)->~exception(); // virtual
}

[[noreturn]] void out_of_memory_throw(const std::string &text) {
    const OutOfMemoryType found = type_find();
    if (found.type == nullptr || found.construct == nullptr)
        throw std::runtime_error(text);
    void *object = abi::__cxa_allocate_exception(kExceptionRoom);
    try {
        found.construct(object, SourceLocation{"berm_torch_malloc", "libberm_torch", 0}, text);
    } catch (...) {
        abi::__cxa_free_exception(object);
        throw;
    }
    abi::__cxa_throw(object, found.type, exception_destroy);
}

// The report of this thread's last request that failed; libberm gives one a second for a call site.
thread_local std::string report;

void report_take(void *, berm_status_t, const char *text) {
    report = text;
}

[[gnu::constructor]] void reports_begin() {
    (void)berm_report_set(report_take, nullptr);
}

bool is_shortage(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT ||
           status == BERM_ERROR_SIZE_TOO_LARGE || status == BERM_ERROR_OUT_OF_ADDRESSES ||
           status == BERM_ERROR_CEILING || status == BERM_ERROR_QUOTA;
}

} // namespace

void berm_torch::raise(const char *what, berm_status_t status) {
    throw std::runtime_error(std::string("berm: ") + what + ": " + berm_status_name(status) + ": " +
                             berm_error_message());
}

void berm_torch::raise_request(std::uint64_t size_bytes, int device, berm_status_t status) {
    const std::string detail = report.empty() ? berm_error_message() : report;
    report.clear();
    if (!is_shortage(status))
        throw std::runtime_error(std::string("berm: allocating: ") + berm_status_name(status) +
                                 ": " + detail);
    char request[96];
    (void)std::snprintf(request, sizeof request,
                        "Tried to allocate %.2f GiB (%llu bytes) on GPU %d.",
                        static_cast<double>(size_bytes) / 0x1p30,
                        static_cast<unsigned long long>(size_bytes), device);
    out_of_memory_throw(std::string("CUDA out of memory. ") + request + "\nberm: " + detail);
}
