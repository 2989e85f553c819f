// SPDX-License-Identifier: Apache-2.0
// What CUPTI and NVRTC write that no table row says. Both keep nothing.
#include "simcuda/standins/standin.h"

BERM_EXPORT int cuptiGetResultString(int result, const char **text);
BERM_EXPORT int nvrtcDestroyProgram(uint64_t *program);
BERM_EXPORT int nvrtcGetLoweredName(uint64_t program, const char *expression, const char **name);

int cuptiGetResultString(int result, const char **text) {
    if (text != NULL)
        *text = result == 0 ? "success" : "CUPTI is not initialised (stand-in)";
    return 0;
}

int nvrtcDestroyProgram(uint64_t *program) {
    enum {
        INVALID_PROGRAM = 4
    };
    if (program == NULL || !standin_delete(*program))
        return INVALID_PROGRAM;
    *program = 0;
    return 0;
}

// Any name will do: no kernel of it is ever more than a launch.
int nvrtcGetLoweredName(uint64_t program, const char *expression, const char **name) {
    enum {
        INVALID_PROGRAM = 4
    };
    if (name != NULL)
        *name = expression != NULL ? expression : "";
    return standin_is_live(program) ? 0 : INVALID_PROGRAM;
}
