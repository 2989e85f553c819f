// SPDX-License-Identifier: Apache-2.0
// The kernels of kernels.h as PTX, which the driver compiles for the device it has.
// tests/lint/check_ptx.py assembles them where a CUDA toolkit is found.
//
// All take (addr, words, result, ns, value). A word is 32 bits; word i is to be value + i. Threads
// share the words out; each waits, or goes on, until `ns` have passed on the device's clock.
#include "stress/calibrate/kernels.h"

// Parameters and the first word of the thread, and how far apart its words are.
#define PTX_PARAMETERS                                                                             \
    "(.param .u64 p_addr, .param .u64 p_words, .param .u64 p_result, .param .u64 p_ns,\n"          \
    " .param .u32 p_value)\n"
#define PTX_BEGIN                                                                                  \
    "{\n"                                                                                          \
    ".reg .pred %p;\n"                                                                             \
    ".reg .b32 %thread, %threads, %block, %first, %count, %value, %want, %found;\n"                \
    ".reg .b64 %addr, %words, %result, %end, %now, %i, %step, %at;\n"                              \
    "ld.param.u64 %addr, [p_addr];\n"                                                              \
    "ld.param.u64 %words, [p_words];\n"                                                            \
    "ld.param.u64 %result, [p_result];\n"                                                          \
    "ld.param.u64 %end, [p_ns];\n"                                                                 \
    "ld.param.u32 %value, [p_value];\n"                                                            \
    "cvta.to.global.u64 %addr, %addr;\n"                                                           \
    "cvta.to.global.u64 %result, %result;\n"                                                       \
    "mov.u64 %now, %globaltimer;\n"                                                                \
    "add.u64 %end, %end, %now;\n"                                                                  \
    "mov.u32 %thread, %tid.x;\n"                                                                   \
    "mov.u32 %threads, %ntid.x;\n"                                                                 \
    "mov.u32 %block, %ctaid.x;\n"                                                                  \
    "mad.lo.u32 %first, %block, %threads, %thread;\n"                                              \
    "mov.u32 %count, %nctaid.x;\n"                                                                 \
    "mul.lo.u32 %count, %count, %threads;\n"                                                       \
    "cvt.u64.u32 %step, %count;\n"

// Waits until the time is over, then writes.
#define PTX_FILL                                                                                   \
    "wait:\n"                                                                                      \
    "mov.u64 %now, %globaltimer;\n"                                                                \
    "setp.lt.u64 %p, %now, %end;\n"                                                                \
    "@%p bra wait;\n"                                                                              \
    "cvt.u64.u32 %i, %first;\n"                                                                    \
    "next:\n"                                                                                      \
    "setp.ge.u64 %p, %i, %words;\n"                                                                \
    "@%p bra done;\n"                                                                              \
    "cvt.u32.u64 %want, %i;\n"                                                                     \
    "add.u32 %want, %want, %value;\n"                                                              \
    "shl.b64 %at, %i, 2;\n"                                                                        \
    "add.u64 %at, %at, %addr;\n"                                                                   \
    "st.global.u32 [%at], %want;\n"                                                                \
    "add.u64 %i, %i, %step;\n"                                                                     \
    "bra next;\n"                                                                                  \
    "done:\n"                                                                                      \
    "ret;\n"                                                                                       \
    "}\n"

// Reads all words, again until the time is over, and counts those that differ.
#define PTX_CHECK                                                                                  \
    "again:\n"                                                                                     \
    "cvt.u64.u32 %i, %first;\n"                                                                    \
    "next:\n"                                                                                      \
    "setp.ge.u64 %p, %i, %words;\n"                                                                \
    "@%p bra pass;\n"                                                                              \
    "cvt.u32.u64 %want, %i;\n"                                                                     \
    "add.u32 %want, %want, %value;\n"                                                              \
    "shl.b64 %at, %i, 2;\n"                                                                        \
    "add.u64 %at, %at, %addr;\n"                                                                   \
    "ld.global.u32 %found, [%at];\n"                                                               \
    "add.u64 %i, %i, %step;\n"                                                                     \
    "setp.eq.u32 %p, %found, %want;\n"                                                             \
    "@%p bra next;\n"                                                                              \
    "red.global.add.u32 [%result], 1;\n"                                                           \
    "bra next;\n"                                                                                  \
    "pass:\n"                                                                                      \
    "mov.u64 %now, %globaltimer;\n"                                                                \
    "setp.lt.u64 %p, %now, %end;\n"                                                                \
    "@%p bra again;\n"                                                                             \
    "ret;\n"                                                                                       \
    "}\n"

// clang-format off
const char stress_kernels_ptx[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    ".visible .entry berm_fill" PTX_PARAMETERS PTX_BEGIN PTX_FILL
    ".visible .entry berm_check" PTX_PARAMETERS PTX_BEGIN PTX_CHECK;

// Dependent launch: the first lets the kernel behind it start at once, the second waits until the
// kernel before it has ended and what it wrote can be seen.
const char stress_kernels_dependent_ptx[] =
    ".version 7.8\n"
    ".target sm_90\n"
    ".address_size 64\n"
    ".visible .entry berm_fill_early" PTX_PARAMETERS PTX_BEGIN
    "griddepcontrol.launch_dependents;\n" PTX_FILL
    ".visible .entry berm_check_late" PTX_PARAMETERS PTX_BEGIN
    "griddepcontrol.wait;\n" PTX_CHECK
    ".visible .entry berm_check_now" PTX_PARAMETERS PTX_BEGIN PTX_CHECK;
// clang-format on
