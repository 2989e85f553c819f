// SPDX-License-Identifier: Apache-2.0
// The public macros as C++ uses them; check_headers.py compiles this as C too.
#include "berm_introspect.h"
#include "berm_share.h"

int use(void);
int use(void) {
    berm_stats_t stats = BERM_STATS_INIT;
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    berm_stream_t stream = BERM_STREAM_NONE;
    return stats.size && whatis.size && info.size && stream ? BERM_DEVICE_ANY : 0;
}
