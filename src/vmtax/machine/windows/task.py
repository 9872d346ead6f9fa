"""What removes our directory on Windows if we never come back: a scheduled task with a deadline. Pure.

It is described in XML, because `schtasks /create /sd` takes a date in the format of the user's country:
https://learn.microsoft.com/en-us/windows/win32/taskschd/task-scheduler-schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import PureWindowsPath
from xml.etree import ElementTree

DEADLINE_HOURS = 72  # after which nothing of a run is left
RENEWED_HOURS = 24  # after which a run that goes on schedules it anew
_NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_SYSTEM = "S-1-5-18"  # the user LocalSystem, in every language
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_REMOVAL = '/c ping -n 3 127.0.0.1 >nul& rmdir /s /q "{}"'
_ATTEMPTS = 3  # a program that was ended, or a virus scanner, lets go of a file a moment later
_FOLDER = r"%SystemRoot%\System32\Tasks"  # of the files of all tasks


def removal_task(directory: PureWindowsPath, programs: Sequence[str], now: datetime) -> bytes:
    """The file for `creation`: DEADLINE_HOURS later, programs of these names are ended, and the directory and the task,
    which has its name, are removed.

    `now`: by the clock of that Windows, UTC: ours may be another one
    """
    due = now + timedelta(hours=DEADLINE_HOURS)
    task = ElementTree.Element("Task", version="1.2", xmlns=_NAMESPACE)
    _add(task, "RegistrationInfo/Description", f"removes {directory} of vmtax, which was interrupted")
    trigger = _add(task, "Triggers/TimeTrigger")
    _add(trigger, "StartBoundary", due.strftime(_FORMAT))
    _add(trigger, "EndBoundary", (due + timedelta(days=365)).strftime(_FORMAT))
    principal = _add(task, "Principals/Principal")
    principal.set("id", "Author")
    _add(principal, "UserId", _SYSTEM)
    _add(principal, "RunLevel", "HighestAvailable")
    settings = _add(task, "Settings")
    for name, text in (
        ("DisallowStartIfOnBatteries", "false"),
        ("StopIfGoingOnBatteries", "false"),
        ("StartWhenAvailable", "true"),  # also if the machine slept or was off
        ("DeleteExpiredTaskAfter", "PT0S"),
    ):
        _add(settings, name, text)
    actions = _add(task, "Actions")
    actions.set("Context", "Author")
    for command, arguments in (
        *(("taskkill.exe", f"/f /im {name}") for name in programs),
        *[("cmd.exe", _REMOVAL.format(directory))] * _ATTEMPTS,
        ("schtasks.exe", f"/delete /tn {directory.name} /f"),
    ):
        action = _add(actions, "Exec")
        _add(action, "Command", command)
        _add(action, "Arguments", arguments)
    text = ElementTree.tostring(task, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-16"?>\r\n{text}\r\n'.encode("utf-16")  # with its mark, as schtasks needs


def creation(name: str, file: PureWindowsPath) -> tuple[str, ...]:
    """The command that schedules the task in that file."""
    return ("schtasks", "/create", "/tn", name, "/xml", str(file), "/f")


def deletion(name: str) -> tuple[str, ...]:
    return ("schtasks", "/delete", "/tn", name, "/f")


def running(name: str) -> tuple[str, ...]:
    """The command that does now what the task will do."""
    return ("schtasks", "/run", "/tn", name)


def ending(program: str) -> tuple[str, ...]:
    """The command that ends every process of a program whose name is this run's alone."""
    return ("taskkill", "/f", "/im", program)


def all_tasks() -> str:
    """The line for cmd.exe that prints the names of the tasks of all runs, one a line, and succeeds."""
    return f'dir /b "{_FOLDER}\\vmtax-*" 2>nul|| ver >nul'


def leftovers(name: str, directory: PureWindowsPath) -> str:
    """The line for cmd.exe that prints a word for each that is still there: directory, task."""
    return f'(if exist "{directory}" echo directory)& (if exist "{_FOLDER}\\{name}" echo task)'


def _add(parent: ElementTree.Element, path: str, text: str | None = None) -> ElementTree.Element:
    for name in path.split("/"):
        parent = ElementTree.SubElement(parent, name)
    parent.text = text
    return parent
