# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's own CUDA provider, unmodified, with berm's three functions: every request of device
memory reaches berm, and no arena is put on top."""
import consumer_test


def session_of(options):
    import onnxruntime
    from small_model import model
    made = onnxruntime.InferenceSession(model(), providers=[("CUDAExecutionProvider", options)])
    assert made.get_providers()[0] == "CUDAExecutionProvider", made.get_providers()
    return made


def forward(session, batch):
    import numpy
    result = session.run(None, {"x": numpy.zeros((batch, 4, 16, 16), "f")})[0]
    assert result.shape == (batch, 10)


def sessions():
    berm = consumer_test.load("onnxruntime")
    import berm.ort
    from small_model import HIDDEN
    session = session_of(berm.ort.provider_options())
    loaded = consumer_test.counted(berm, "onnxruntime")
    inner = 8 * 14 * 14 * HIDDEN * 4
    assert loaded[1] >= inner, "the weights are in berm's memory"
    by_driver = consumer_test.calls("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync")
    for batch in (1, 7, 3, 64, 2, 64):
        forward(session, batch)
    assert consumer_test.counted(berm, "onnxruntime")[0] >= loaded[0] + 6, "no arena is on top"
    assert by_driver == consumer_test.calls("cuMemAlloc_v2", "cuMemAllocAsync",
                                            "cuMemAllocFromPoolAsync"), "nothing goes past berm"
    consumer_test.no_real_libraries()
    other = session_of(berm.ort.provider_options())
    forward(other, 5)
    del session, other
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime", "gpu_external_*, two sessions", least=20)


def out_of_memory():
    berm = consumer_test.load("onnxruntime")
    import berm.ort
    session = session_of(berm.ort.provider_options())
    forward(session, 8)
    berm.limit(0, berm.stats()["reserved_bytes"]["current"] + (16 << 20))
    try:
        forward(session, 100000)
    except Exception as error:  # its class is of the binding
        assert "lloc" in str(error), error
    else:
        raise AssertionError("more than the limit was given")
    assert berm.stats()["out_of_memory"] > 0
    forward(session, 8)  # and it goes on
    del session
    consumer_test.finish(berm, "onnxruntime-gpu", "onnxruntime",
                         "a request beyond the limit is ONNX Runtime's error")


def options_are_checked():
    berm = consumer_test.load("onnxruntime")
    import berm.ort
    options = berm.ort.provider_options(1, arena_extend_strategy="kSameAsRequested")
    assert options["device_id"] == "1" and options["arena_extend_strategy"] == "kSameAsRequested"
    assert all(isinstance(value, str) for value in options.values())
    for wrong in (lambda: berm.ort.provider_options(gpu_external_alloc=1),
                  lambda: berm.ort.provider_options(user_compute_stream=1),
                  lambda: berm.ort.bind_stream(None, 64), lambda: berm.ort.bind_stream(7, -1)):
        try:
            wrong()
        except berm.BermError:
            continue
        raise AssertionError("it was taken")


consumer_test.run({sessions: {}, out_of_memory: {}, options_are_checked: {}})
