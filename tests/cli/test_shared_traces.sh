# SPDX-License-Identifier: Apache-2.0
# The three smallest real recordings; all of them are in test_shared_traces_slow.sh.
. "$(dirname "$0")/shared_traces.sh"

torch own/multi_stream.pickle.gz 234.4 600
berm own/multi_stream.pickle.gz 234.4 1.05
minimalloc <<'PEAKS'
A 1.000
B 1.000
PEAKS
finish
