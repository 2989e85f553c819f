# SPDX-License-Identifier: Apache-2.0
# find_package(berm): berm::berm; berm::berm_static; berm::tensorrt and berm::rmm, the headers for
# programs with TensorRT or RMM; berm::berm_preload, a file for LD_PRELOAD, not to be linked.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/bermTargets.cmake)
