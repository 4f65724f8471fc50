"""Messages between sites: the bytes of one message of each kind, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from diamond.sites.transport import messages
from diamond.sites.transport.messages import (
    DOWN,
    AllKeysAnswer,
    AllKeysRequest,
    Greeting,
    GreetingAnswer,
    OverviewAnswer,
    OverviewQuery,
    OwnKeyAnswer,
    OwnKeyRequest,
    Ping,
    Pong,
    RollbackNotice,
    RosterAnswer,
    RosterOffer,
    SessionOpening,
    StatusAnswer,
    StatusQuery,
    StopAnswer,
    StopRequest,
    Vote,
    decode_request,
)
from diamond.sites.transport.wire_format import Envelope, FrameError, encode, unpack

pytestmark = pytest.mark.quick

PLACE = "d1ce", 3, 7, 5, 2
RECEIPTS = [(1, 0, b"d", 0, b"")]
REQUESTS = {
    "ping": Ping(3),
    "status": StatusQuery(3),
    "stop": StopRequest(3),
    "test": Greeting(3, {"run": "d1ce"}),
    "hello": Greeting(3, {"run": "d1ce"}, 2.5, [7, 2]),
    "roster": RosterOffer(3, b"zip", b"sig"),
    "overview": OverviewQuery(3, b"q" * 16, 1.5, 2),
    "mask key": OwnKeyRequest(3, "d1ce", b"k" * 32),
    "mask keys": AllKeysRequest(3, "d1ce", b"k" * 32),
    "ask": messages.MessageRequest(*PLACE),
    "follow": messages.SubscriptionRequest(*PLACE),
    "word": messages.VoteRequest(*PLACE),
    "kept": messages.DurableReport(*PLACE),
    "position": messages.PositionReport(*PLACE),
}
MESSAGES = REQUESTS | {
    "open": SessionOpening(4),
    "open to be asked": SessionOpening(4, b"12345678", True),
    "answer to ping": Pong(),
    "answer to hello": GreetingAnswer(5, 4, [list(each) for each in RECEIPTS], True),
    "answer to a test": GreetingAnswer(),
    "answer to status": StatusAnswer({"round": 3, "connected": [1]}),
    "answer to stop": StopAnswer({"round": 3}),
    "answer to roster": RosterAnswer(4),
    "refusal of a roster": RosterAnswer(4, "old", b"z", b"sig"),
    "answer to overview": OverviewAnswer([b"one"]),
    "answer to mask key": OwnKeyAnswer(b"one"),
    "answer to mask keys": AllKeysAnswer([[1, b"one"]]),
    "gone": RollbackNotice("d1ce", 3, 7, 2),
    "vote": Vote(DOWN, 9),
}
FRAMES = {
    "open": "444d4e44031300000082a46b696e64a46f70656ea6726f7374657204c48a4f7f",
    "open to be asked": (
        "444d4e44032f00000084a46b696e64a46f70656ea6726f7374657204a8696e7374616e6365c40831"
        "32333435363738a7616e7377657273c3125c7fb9"
    ),
    "ping": "444d4e44031300000082a46b696e64a470696e67a673656e6465720376f6dad1",
    "status": "444d4e44031500000082a46b696e64a6737461747573a673656e64657203b4d75722",
    "stop": "444d4e44031300000082a46b696e64a473746f70a673656e64657203cce945e4",
    "test": (
        "444d4e44032400000083a46b696e64a568656c6c6fa673656e64657203a5706172747381a372756e"
        "a46431636582c89e62"
    ),
    "hello": (
        "444d4e44033c00000085a46b696e64a568656c6c6fa673656e64657203a5706172747381a372756e"
        "a464316365a677697468696ecb4004000000000000a466726f6d92070257408adb"
    ),
    "roster": (
        "444d4e44033000000084a46b696e64a6726f73746572a673656e64657203a6726f73746572c4037a"
        "6970a97369676e6174757265c40373696799ea47b0"
    ),
    "overview": (
        "444d4e44034600000085a46b696e64a86f76657276696577a673656e64657203a57175657279c410"
        "71717171717171717171717171717171a77365636f6e6473cb3ff8000000000000a4686f707302f4"
        "664c2b"
    ),
    "mask key": (
        "444d4e44034600000084a46b696e64a86d61736b206b6579a673656e64657203a372756ea4643163"
        "65a36b6579c4206b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b5b"
        "774ebb"
    ),
    "mask keys": (
        "444d4e44034700000084a46b696e64a96d61736b206b657973a673656e64657203a372756ea46431"
        "6365a36b6579c4206b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "f95bc2b3"
    ),
    "ask": (
        "444d4e44033100000086a46b696e64a361736ba372756ea464316365a673656e64657203a5726f75"
        "6e6407a764757261626c6505a474616c6b02713aa05e"
    ),
    "follow": (
        "444d4e44033400000086a46b696e64a6666f6c6c6f77a372756ea464316365a673656e64657203a5"
        "726f756e6407a764757261626c6505a474616c6b026497086b"
    ),
    "word": (
        "444d4e44033200000086a46b696e64a4776f7264a372756ea464316365a673656e64657203a5726f"
        "756e6407a764757261626c6505a474616c6b0236ea086c"
    ),
    "kept": (
        "444d4e44033200000086a46b696e64a46b657074a372756ea464316365a673656e64657203a5726f"
        "756e6407a764757261626c6505a474616c6b0261ef033b"
    ),
    "position": (
        "444d4e44033600000086a46b696e64a8706f736974696f6ea372756ea464316365a673656e646572"
        "03a5726f756e6407a764757261626c6505a474616c6b025d4d0eff"
    ),
    "answer to ping": "444d4e44030b00000081a46b696e64a470696e6755dba5ba",
    "answer to hello": (
        "444d4e44033400000085a46b696e64a568656c6c6fa764757261626c6505a46b65707404a8726563"
        "656970747391950100c4016400c400a46d6f7265c3724964b8"
    ),
    "answer to a test": (
        "444d4e44031b00000083a46b696e64a568656c6c6fa764757261626c6500a46b65707400dded8d9f"
    ),
    "answer to status": (
        "444d4e44032000000083a46b696e64a6737461747573a5726f756e6403a9636f6e6e65637465649101ac279a42"
    ),
    "answer to stop": "444d4e44031200000082a46b696e64a473746f70a5726f756e64035327f657",
    "answer to roster": ("444d4e44031600000082a46b696e64a6726f73746572a776657273696f6e04078f3c99"),
    "refusal of a roster": (
        "444d4e44033b00000085a46b696e64a6726f73746572a776657273696f6e04a772656675736564a3"
        "6f6c64a6726f73746572c4017aa97369676e6174757265c403736967e31be4e7"
    ),
    "answer to overview": (
        "444d4e44031d00000082a46b696e64a86f76657276696577a77265636f72647391c4036f6e6584065d88"
    ),
    "answer to mask key": (
        "444d4e44031b00000082a46b696e64a86d61736b206b6579a67265636f7264c4036f6e65305a75dd"
    ),
    "answer to mask keys": (
        "444d4e44032000000082a46b696e64a96d61736b206b657973a77265636f726473919201c4036f6e6534b27b25"
    ),
    "message": (
        "444d4e44034c00000087a46b696e64a76d657373616765a372756ea464316365a673656e64657203"
        "a5726f756e6407a474616c6b02a66172726179739192a7666c6f617433329102a861747461636865"
        "64c40261740000000000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000000000803f000000c01e704c7a"
    ),
    "gone": (
        "444d4e44032900000085a46b696e64a4676f6e65a372756ea464316365a673656e64657203a5726f"
        "756e6407a474616c6b025a802ba2"
    ),
    "vote": ("444d4e44031c00000083a46b696e64a4776f7264a4776f7264a4646f776ea5756e74696c09948a5663"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_bytes_of_each_kind_are_those_of_earlier_releases(name):
    message, frame = MESSAGES[name], bytes.fromhex(FRAMES[name])
    assert bytes(message.encode()) == frame
    if not isinstance(message, StatusAnswer):
        assert type(message).read(frame) == message


def test_the_bytes_of_a_message_of_a_round_are_those_of_earlier_releases():
    arrays = [np.array([1.0, -2.0], np.float32)]
    frame = encode(Envelope("d1ce", 3, 7, 2), arrays, lambda parts: b"at")
    assert bytes(frame).hex() == FRAMES["message"]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_decoded_by_its_class_and_nothing_else_is(name):
    request = REQUESTS[name]
    header, _ = unpack(request.encode(), 1000)
    assert decode_request(header) == request
    for field in header.keys() - {"parts", "within", "from"}:
        for value in (None, [[]], {"a": 1}, -1.5):
            with pytest.raises(FrameError):
                decode_request(header | {field: value})


def test_every_kind_of_request_is_pinned():
    assert messages.REQUESTS.keys() == {request.kind for request in REQUESTS.values()}


@pytest.mark.parametrize("kind", ["ask", "follow", "word", "kept", "position"])
def test_requests_about_rounds_have_possible_numbers_and_no_other_fields(kind):
    header, _ = unpack(replace(REQUESTS[kind]).encode(), 1000)
    for change in ({"round": 4}, {"durable": -1}, {"round": True}, {"run": 1}, {"round": 2**40}):
        with pytest.raises(FrameError):
            decode_request(header | change)
    with pytest.raises(FrameError, match="fields"):
        decode_request(header | {"more": 1})


@pytest.mark.parametrize("place", [7, [7], [7, 2.0], [-1, 0], [True, 0], [0, 2**40]])
def test_a_greeting_asks_for_receipts_from_a_place(place):
    header, _ = unpack(REQUESTS["hello"].encode(), 1000)
    with pytest.raises(FrameError, match="from which receipts are wanted"):
        decode_request(header | {"from": place})


def test_an_unknown_request_is_named():
    with pytest.raises(FrameError, match="a request for 'secret', which is unknown here"):
        decode_request({"kind": "secret", "sender": 1})
