from trimodal.server.admin import Api, in_flight
from trimodal.server.ports import choose

METRICS = """
# HELP trimodal_llm_active_requests Requests in the engine
# TYPE trimodal_llm_active_requests gauge
trimodal_llm_active_requests{model="llm"} 3
trimodal_llm_queued_requests{model="llm",tier="free"} 2
trimodal_speech_active_requests{tier="x",model="speech"} 0
trimodal_llm_speculation_active{model="llm"} 1
nv_inference_pending_request_count{model="llm",version="1"} 7
"""


def test_in_flight_sums_active_and_queued_requests():
    assert in_flight(METRICS) == {"llm": 5.0, "speech": 0.0}
    assert in_flight("") == {}


def test_nobody_answers():
    ports = choose("127.0.0.1", {"http": 0, "metrics": 0})
    api = Api("127.0.0.1", ports["http"], ports["metrics"], "key")
    assert not api.ready()
    assert not api.ready("llm")
