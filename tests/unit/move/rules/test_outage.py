"""The order in which all brokers go down, with more than one at once; and whose name stands for consent."""

from __future__ import annotations

from tests.world.operator import inventory
from tests.world.returned import AGREED
from zkmigrate.inventory.inventory import Broker
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.move.rules.outage import consenting_owner, next_to_stop

FOUR = tuple(Broker(name=f"b{n}", address=f"10.0.0.{n}", id=n) for n in (1, 2, 3, 4))


def view(*replicas: tuple[int, ...], controller: int = 4) -> KafkaView:
    partitions = tuple(PartitionState("t", n, ids[0], ids, ids) for n, ids in enumerate(replicas))
    return KafkaView("id", controller, {}, partitions)


def test_brokers_that_share_no_partition_stop_at_once_and_the_controller_alone() -> None:
    assert next_to_stop(view((1, 2), (2, 3)), FOUR, 3) == (("b1", "b3"), "")
    assert next_to_stop(view((1, 2), (3,)), FOUR, 2) == (("b1", "b3"), "")
    assert next_to_stop(view((1,), (2,), (3,), (4,)), FOUR, 9) == (("b1", "b2", "b3"), "")
    assert next_to_stop(view((1, 2)), FOUR[3:], 9) == (("b4",), "")
    assert next_to_stop(view((1,)), (), 9) == ((), "")


def test_a_name_counts_until_its_time_is_over() -> None:
    end = AGREED.end
    made = inventory().model_copy(update={"accept": (AGREED,)})
    assert consenting_owner(made, end - 1) == "Ada, who owns source"
    assert consenting_owner(made, end) == ""
    assert consenting_owner(inventory(), 0.0) == ""
