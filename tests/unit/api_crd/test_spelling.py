"""Every word of the LangGraph API has one in the resources, and the way there and back is the same word."""

from typing import get_args

import pytest

from runyard_api.payload import Durability, StreamMode
from runyard_api.spelling import CancelWord, DisconnectWord, DurabilityWord, StrategyWord, StreamWord
from runyard_api.states import CancelAction, Strategy


@pytest.mark.parametrize(
    ("words", "wire"),
    [
        (StrategyWord, list(Strategy)),
        (CancelWord, list(CancelAction)),
        (DisconnectWord, ["cancel", "continue"]),
        (DurabilityWord, list(get_args(Durability))),
        (StreamWord, list(get_args(StreamMode))),
    ],
    ids=["strategy", "cancel", "disconnect", "durability", "stream mode"],
)
def test_words_and_wire_words_are_the_same_set(
    words: type[StrategyWord | CancelWord | DisconnectWord | DurabilityWord | StreamWord], wire: list[str]
) -> None:
    assert {word.wire for word in words} == set(wire)
    assert [words.of(word).wire for word in wire] == wire


def test_a_hyphen_becomes_a_capital() -> None:
    assert StreamWord.of("messages-tuple") is StreamWord.MESSAGES_TUPLE
    assert StreamWord.MESSAGES_TUPLE.value == "MessagesTuple"


def test_wire_words_have_the_type_that_the_contract_works_with() -> None:
    assert StrategyWord.ROLLBACK.wire is Strategy.ROLLBACK
    assert CancelWord.ROLLBACK.wire is CancelAction.ROLLBACK


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="Skip"):
        StrategyWord.of("skip")
