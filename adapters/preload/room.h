// SPDX-License-Identifier: Apache-2.0
// Requests that only the driver can serve: what berm keeps idle is in their way, as berm's own
// requests never see it. One that fails for lack of memory is made once more after berm has given
// its idle memory back.
#ifndef PRELOAD_ROOM_H
#define PRELOAD_ROOM_H

#include "serve.h"

#define ROOM_TRY(call)                                                                             \
    __extension__({                                                                                \
        int room_result_ = (call);                                                                 \
        if (room_result_ == BERM_CU_OUT_OF_MEMORY && serve_make_room())                            \
            room_result_ = (call);                                                                 \
        room_result_;                                                                              \
    })

#endif
