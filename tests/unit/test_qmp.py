"""QMP over pipes, with a QEMU that is slow to answer."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

import pytest

from vmtax.hypervisor.qemu.qmp import Qmp, QmpError


class Slow:
    """Answers every command with its name; the first `slow` one late."""

    def __init__(self, seconds: float) -> None:
        asked, told = os.pipe(), os.pipe()
        self.stdin: Any = os.fdopen(asked[1], "wb")
        self.stdout: Any = os.fdopen(told[0], "rb")
        self._asked: Any = os.fdopen(asked[0], "rb")
        self._told: Any = os.fdopen(told[1], "wb")
        self._seconds = seconds
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        self._say({"QMP": {}})
        for line in self._asked:
            command = json.loads(line)
            if command["execute"] == "slow":
                time.sleep(self._seconds)
            self._say({"event": "RTC_CHANGE"})
            self._say({"return": command["execute"], "id": command["id"]})

    def _say(self, message: dict[str, Any]) -> None:
        self._told.write(json.dumps(message).encode() + b"\n")
        self._told.flush()


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one() -> None:
    qmp = Qmp(Slow(0.3), 5.0)
    with pytest.raises(QmpError, match="gave no answer within"):
        qmp.execute("slow", timeout=0.05)
    assert qmp.execute("next") == "next"
    assert qmp.execute("again") == "again"


def test_names_of_a_devices_properties_are_not_those_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[dict[str, Any]] = []
    fake = Slow(0.0)
    monkeypatch.setattr(json, "dumps", lambda data, dumps=json.dumps: written.append(data) or dumps(data))
    Qmp(fake, 5.0).execute("device_add", 5.0, {"failover_pair_id": "a"}, max_bandwidth=1)
    (asked,) = [each["arguments"] for each in written if each.get("execute") == "device_add"]
    assert asked == {"failover_pair_id": "a", "max-bandwidth": 1}
