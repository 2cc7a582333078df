"""Writes test/golden/tensorboard/events.tfevents with TensorBoard's own writer, for test/tensorboard.test.ts.

    pip install tensorboard==2.21.0
    python scripts/golden/event_file.py test/golden/tensorboard/events.tfevents
"""

import sys

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


def scalars(step, wall_time, values):
    value = [Summary.Value(tag=tag, simple_value=number) for tag, number in values]
    return Event(step=step, wall_time=wall_time, summary=Summary(value=value))


with open(sys.argv[1], "wb") as file:
    writer = RecordWriter(file)
    for event in (
        Event(wall_time=1700000000.5, file_version="brain.Event:2"),
        scalars(0, 1700000001.25, [("train/reward", 0.1), ("train/kl", 0.0)]),
        scalars(300, 1700000002.0, [("train/reward", -1.5e-8), ("validation/accuracy", 0.875)]),
        scalars(5_000_000_000, 1700000003.0, [("train/entropy", float("inf"))]),
    ):
        writer.write(event.SerializeToString())
    writer.close()
