# SPDX-License-Identifier: Apache-2.0
"""berm's OrtAllocator, registered with the real ONNX Runtime by its C interface: a session of the
CUDA provider takes its memory there, and the statistics are those of ONNX Runtime's own arena."""
import ctypes
import importlib.util
import pathlib

import consumer_test

KEYS = {"Limit", "InUse", "TotalAllocated", "MaxInUse", "NumAllocs", "NumReserves",
        "NumArenaExtensions", "NumArenaShrinkages", "MaxAllocSize"}
VERSION = 31
pointer, text = ctypes.c_void_p, ctypes.c_char_p


class Allocator(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32)] + [(name, pointer) for name in (
        "Alloc", "Free", "Info", "Reserve", "GetStats", "AllocOnStream", "Shrink")]


class Api:
    """OrtApi: functions by their positions in the table, which never change."""
    POSITIONS = {
        "GetErrorMessage": 2, "CreateEnv": 3, "CreateSessionFromArray": 8, "Run": 9,
        "CreateSessionOptions": 10, "CreateTensorWithDataAsOrtValue": 49, "GetTensorMutableData": 51,
        "CreateCpuMemoryInfo": 69, "AllocatorAlloc": 75, "AllocatorFree": 76, "ReleaseEnv": 92,
        "ReleaseStatus": 93, "ReleaseMemoryInfo": 94, "ReleaseSession": 95, "ReleaseValue": 96,
        "ReleaseSessionOptions": 100, "AddSessionConfigEntry": 130, "RegisterAllocator": 176,
        "UnregisterAllocator": 177, "UpdateCUDAProviderOptions": 206,
        "CreateCUDAProviderOptions": 205, "SessionOptionsAppendExecutionProvider_CUDA_V2": 204,
        "ReleaseCUDAProviderOptions": 208, "GetKeyValuePairs": 298, "ReleaseKeyValuePairs": 300,
        "AllocatorGetStats": 319}

    def __init__(self):
        package = importlib.util.find_spec("onnxruntime").submodule_search_locations[0]
        self.library = ctypes.CDLL(str(next(pathlib.Path(package, "capi").glob("libonnxruntime.so.*"))))
        base = self.library.OrtGetApiBase
        base.restype = ctypes.POINTER(pointer)
        get_api = ctypes.CFUNCTYPE(pointer, ctypes.c_uint32)(base()[0])
        self.address = get_api(VERSION)
        assert self.address, "this version has another interface"
        self.table = ctypes.cast(self.address, ctypes.POINTER(pointer))

    def function(self, name, result=pointer):
        return lambda *arguments: ctypes.CFUNCTYPE(result, *map(type, arguments))(
            self.table[self.POSITIONS[name]])(*arguments)

    def call(self, name, *arguments):
        """A function that gives a status; raises what it says."""
        status = self.function(name)(*arguments)
        if status:
            message = ctypes.CFUNCTYPE(text, pointer)(self.table[2])(status).decode()
            self.function("ReleaseStatus", None)(pointer(status))
            raise RuntimeError(f"{name}: {message}")

    def make(self, name, *arguments):
        """One that writes an object to its last argument."""
        made = pointer()
        self.call(name, *arguments, ctypes.pointer(made))
        return made

    def release(self, name, made):
        self.function(name, None)(made)


def allocator_of(api, version=VERSION, device=0):
    from berm import _capi
    native = _capi.companion("ort")
    made = ctypes.POINTER(Allocator)()
    native.berm_ort_allocator_create.argtypes = [pointer, ctypes.c_uint32, ctypes.c_int, pointer]
    status = native.berm_ort_allocator_create(api, version, device, ctypes.addressof(made))
    return status, made, native


def statistics(api, allocator):
    pairs = api.make("AllocatorGetStats", allocator)
    keys, values = ctypes.POINTER(text)(), ctypes.POINTER(text)()
    count = ctypes.c_size_t()
    api.function("GetKeyValuePairs", None)(pairs, ctypes.pointer(keys), ctypes.pointer(values),
                                           ctypes.pointer(count))
    found = {keys[i].decode(): int(values[i]) for i in range(count.value)}
    api.release("ReleaseKeyValuePairs", pairs)
    assert set(found) == KEYS, found
    return found


def stream_create():
    driver = ctypes.CDLL("libcuda.so.1")
    context, stream = pointer(), pointer()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream


def session_of(api, env, stream):
    options, cuda = api.make("CreateSessionOptions"), api.make("CreateCUDAProviderOptions")
    given = {b"device_id": b"0"}
    if stream:
        given[b"user_compute_stream"] = str(stream.value).encode()
    keys, values = (text * len(given))(*given), (text * len(given))(*given.values())
    api.call("UpdateCUDAProviderOptions", cuda, keys, values, ctypes.c_size_t(len(given)))
    api.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, cuda)
    api.call("AddSessionConfigEntry", options, text(b"session.use_env_allocators"), text(b"1"))
    from small_model import model
    data = model()
    session = api.make("CreateSessionFromArray", env, text(data), ctypes.c_size_t(len(data)), options)
    api.release("ReleaseCUDAProviderOptions", cuda)
    api.release("ReleaseSessionOptions", options)
    return session


def forward(api, session, batch):
    info = api.make("CreateCpuMemoryInfo", ctypes.c_int(0), ctypes.c_int(0))
    shape, data = (ctypes.c_int64 * 4)(batch, 4, 16, 16), (ctypes.c_float * (batch * 4 * 16 * 16))()
    value = api.make("CreateTensorWithDataAsOrtValue", info, ctypes.cast(data, pointer),
                     ctypes.c_size_t(ctypes.sizeof(data)), shape, ctypes.c_size_t(4), ctypes.c_int(1))
    results, inputs = (pointer * 1)(), (pointer * 1)(value)
    api.call("Run", session, pointer(), (text * 1)(b"x"), inputs, ctypes.c_size_t(1),
             (text * 1)(b"y"), ctypes.c_size_t(1), results)
    for one, name in ((pointer(results[0]), "ReleaseValue"), (value, "ReleaseValue"),
                      (info, "ReleaseMemoryInfo")):
        api.release(name, one)


def counted(allocator, name, *arguments):
    """Puts a function before that of the allocator; gives the list of its calls, and what has to be
    kept for as long as the allocator is used."""
    kind = ctypes.CFUNCTYPE(pointer, pointer, *arguments)
    native, calls = kind(getattr(allocator.contents, name)), []

    def call(*given):
        calls.append(given[1:])
        return native(*given)

    kept = kind(call)
    setattr(allocator.contents, name, ctypes.cast(kept, pointer))
    return calls, kept


def registered(stream=None):
    berm = consumer_test.load("onnxruntime")
    api = Api()
    status, allocator, native = allocator_of(api.address)
    assert status == 0
    on_stream, _kept = counted(allocator, "AllocOnStream", ctypes.c_size_t, pointer)
    env = api.make("CreateEnv", ctypes.c_int(3), text(b"berm"))
    api.call("RegisterAllocator", env, allocator)
    if stream is not None:
        stream = stream()
        import berm.ort
        berm.ort.bind_stream(stream.value)
    session = session_of(api, env, stream)
    for batch in (1, 7, 3, 64, 2):
        forward(api, session, batch)
    assert len(on_stream) >= 5 and all(given for _, given in on_stream), on_stream  # by ONNX Runtime
    found, stats = statistics(api, allocator), berm.stats()
    assert found["InUse"] == stats["requested_bytes"]["current"] > 0
    assert found["MaxInUse"] >= found["InUse"] and found["MaxAllocSize"] <= found["MaxInUse"]
    assert found["TotalAllocated"] == stats["reserved_bytes"]["current"]
    assert found["NumAllocs"] + found["NumReserves"] == berm.tags()["onnxruntime"]["blocks"]["total_up"]
    assert found["Limit"] == berm.device_info()["memory_bytes"] and found["NumArenaExtensions"] > 0
    if stream is not None:
        pools = {pool["stream"] for pool in berm.snapshot()["devices"][0]["pools"] if pool["segments"]}
        assert hex(stream.value) in pools, pools
    api.release("ReleaseSession", session)
    shrink = ctypes.CFUNCTYPE(pointer, pointer)(allocator.contents.Shrink)
    assert shrink(ctypes.cast(allocator, pointer)) is None
    assert berm.stats()["reserved_bytes"]["current"] == 0
    assert statistics(api, allocator)["NumArenaShrinkages"] == 1
    api.call("UnregisterAllocator", env, allocator_info(allocator))
    api.release("ReleaseEnv", env)
    native.berm_ort_allocator_destroy(allocator)
    return berm


def allocator_info(allocator):
    info = ctypes.CFUNCTYPE(pointer, pointer)(allocator.contents.Info)
    return pointer(info(ctypes.cast(allocator, pointer)))


def session_and_statistics():
    berm = registered()
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime", "an OrtAllocator, registered", least=5)


def on_the_sessions_stream():
    berm = registered(stream_create)
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime",
                         "an OrtAllocator on user_compute_stream", least=5)


def reload(stream):
    """Twelve sessions one after the other; gives berm and its number of pools after each."""
    berm = consumer_test.load("onnxruntime")
    api = Api()
    status, allocator, native = allocator_of(api.address)
    assert status == 0
    env = api.make("CreateEnv", ctypes.c_int(3), text(b"berm"))
    api.call("RegisterAllocator", env, allocator)
    stream, pools = stream and stream(), []
    for _ in range(12):
        session = session_of(api, env, stream)
        for batch in (1, 64, 3):
            forward(api, session, batch)
        api.release("ReleaseSession", session)
        assert berm.stats()["blocks"]["current"] == 0
        pools.append(berm.stats()["pools"])
    shrink = ctypes.CFUNCTYPE(pointer, pointer)(allocator.contents.Shrink)
    assert shrink(ctypes.cast(allocator, pointer)) is None
    assert berm.stats()["reserved_bytes"]["current"] == 0, "memory of streams that are gone is kept"
    api.call("UnregisterAllocator", env, allocator_info(allocator))
    api.release("ReleaseEnv", env)
    native.berm_ort_allocator_destroy(allocator)
    return berm, pools


def sessions_with_streams_of_their_own():
    """ONNX Runtime makes a stream for each session and destroys it untold: berm keeps a record of
    each, and no memory for it once it shrinks."""
    berm, pools = reload(None)
    assert pools[-1] <= 12 + 1, pools
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime", "sessions that come and go", least=36)


def sessions_on_one_stream():
    """With user_compute_stream there is one stream, and no record more with each session."""
    berm, pools = reload(stream_create)
    assert pools[-1] == pools[1], pools
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime",
                         "sessions that come and go, on user_compute_stream", least=36)


def by_version():
    """What an allocator has follows the version that is asked for; requests of its own."""
    berm = consumer_test.load("onnxruntime")
    api = Api()
    for version, has in ((9, ""), (17, ""), (18, "Reserve"), (22, "Reserve"),
                         (23, "Reserve GetStats AllocOnStream"), (24, "Reserve GetStats AllocOnStream"),
                         (25, "Reserve GetStats AllocOnStream Shrink"),
                         (99, "Reserve GetStats AllocOnStream Shrink")):
        status, made, native = allocator_of(api.address, version)
        assert status == 0 and made.contents.version == min(version, VERSION)
        assert has.split() == [name for name in ("Reserve", "GetStats", "AllocOnStream", "Shrink")
                               if getattr(made.contents, name)], version
        native.berm_ort_allocator_destroy(made)
    for wrong, status in (((None, 31, 0), 1), ((api.address, 8, 0), 24), ((api.address, 31, -1), 1)):
        assert allocator_of(*wrong)[0] == status, wrong
    native.berm_ort_allocator_destroy(None)
    status, made, native = allocator_of(api.address)
    assert status == 0
    self = ctypes.cast(made, pointer)
    alloc = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t)
    blocks = [alloc(made.contents.Alloc)(self, 1000), alloc(made.contents.Reserve)(self, 5 << 20)]
    on_stream = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, pointer)(
        made.contents.AllocOnStream)
    blocks.append(on_stream(self, 3000, None))
    assert all(blocks) and alloc(made.contents.Alloc)(self, 0) is None
    assert alloc(made.contents.Alloc)(self, 1 << 50) is None, "more than the device has is NULL"
    found = statistics(api, made)
    assert (found["NumAllocs"], found["NumReserves"], found["InUse"], found["MaxAllocSize"]) == (
        2, 1, 4000 + (5 << 20), 5 << 20), found
    free = ctypes.CFUNCTYPE(None, pointer, pointer)(made.contents.Free)
    for block in blocks + [None]:
        free(self, block)
    assert statistics(api, made)["InUse"] == 0
    native.berm_ort_allocator_destroy(made)
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime", "an OrtAllocator of each version",
                         least=3)


def on_a_stream_that_is_passed():
    """AllocOnStream asks ONNX Runtime for the stream's handle: here a table of functions in its
    place, of which that one is called."""
    berm = consumer_test.load()
    berm.device_count()
    stream = stream_create()
    kept = [ctypes.CFUNCTYPE(pointer, pointer)(lambda given: stream.value if given == 77 else None),
            ctypes.CFUNCTYPE(pointer, text, ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer)(
                lambda *_: None), ctypes.CFUNCTYPE(None, pointer)(lambda _: None)]
    table = (pointer * 400)()
    for position, function in zip((384, 68, 94), kept):
        table[position] = ctypes.cast(function, pointer)
    status, made, native = allocator_of(ctypes.addressof(table))
    assert status == 0
    self = ctypes.cast(made, pointer)
    on_stream = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, pointer)(
        made.contents.AllocOnStream)
    block = on_stream(self, 4 << 20, 77)
    pools = {pool["stream"] for pool in berm.snapshot()["devices"][0]["pools"] if pool["segments"]}
    assert block and pools == {hex(stream.value)}, pools
    ctypes.CFUNCTYPE(None, pointer, pointer)(made.contents.Free)(self, block)
    native.berm_ort_allocator_destroy(made)
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime", "AllocOnStream")


def refused_memory_info():
    """An ONNX Runtime that knows no such memory: its status is released, and there is no allocator."""
    consumer_test.load()
    released = []
    kept = [ctypes.CFUNCTYPE(pointer, text, ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer)(
        lambda *_: 55), ctypes.CFUNCTYPE(None, pointer)(released.append)]
    table = (pointer * 400)()
    for position, function in zip((68, 93), kept):
        table[position] = ctypes.cast(function, pointer)
    status, made, _ = allocator_of(ctypes.addressof(table))
    assert status == 26 and not made and released == [55], (status, released)


if __name__ == "__main__":
    consumer_test.run({session_and_statistics: {}, on_the_sessions_stream: {},
                       sessions_with_streams_of_their_own: {"SIMCUDA_STRICT": "1"},
                       sessions_on_one_stream: {"SIMCUDA_STRICT": "1"}, by_version: {},
                       on_a_stream_that_is_passed: {}, refused_memory_info: {}})
