// SPDX-License-Identifier: Apache-2.0
// The versions of the stand-in interface: see NvInferRuntime.h.
#ifndef STANDIN_NV_INFER_VERSION_H
#define STANDIN_NV_INFER_VERSION_H

#ifndef STANDIN_TENSORRT
#error "define STANDIN_TENSORRT: 8, 9, 10, 11, or 1 for RTX"
#endif

#if STANDIN_TENSORRT == 1
#define TRT_MAJOR_RTX     1
#define TRT_MINOR_RTX     2
#define NV_TENSORRT_MAJOR TRT_MAJOR_RTX
#define NV_TENSORRT_MINOR TRT_MINOR_RTX
#else
#define NV_TENSORRT_MAJOR STANDIN_TENSORRT
#define NV_TENSORRT_MINOR 0
#endif

#endif
