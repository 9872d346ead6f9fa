"""What a user's ssh configuration and login shell say, against a real sshd and real shells."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from _pytest.mark import ParameterSet

from vmtax.core.machines import MachineLost
from vmtax.machine import remote_command
from vmtax.machine.local import LocalMachine
from vmtax.machine.reader import SshReader
from vmtax.machine.ssh import Route, SshMachine, connect_host

# A server on the client's standard input and output, with a private list of users; constant text.
SERVE = 'mount --bind "$1" /etc/passwd && exec /usr/sbin/sshd -i -E /dev/null -f "$2"'
TEXT = "one 'two' \"three\"\n\n$HOME `id` !! !x ; & | \\ \\\\ %s ü\n"


@dataclass(frozen=True)
class Server:
    """A host that a user has in his configuration, as `there`."""

    local: LocalMachine
    directory: Path

    def route(self, shell: str = "/bin/bash", lines: str = "", **start: str) -> Route:
        """How to log in where this is the shell; `lines`: more of the configuration; `start`: its start-up files."""
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        for name, text in start.items():
            path = home / name.replace("__", "/").replace("dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        users = self.directory / "passwd"
        users.write_text(f"{Path('/etc/passwd').read_text()}there:x:0:0::{home}:{shell}\n")
        settings = self.directory / "config"
        settings.write_text(
            f"{lines}\nHost there\n User there\n IdentityFile {self.directory}/id\n"
            f" UserKnownHostsFile {self.directory}/known_hosts\n BatchMode yes\n"
            f" ProxyCommand unshare --mount sh -c '{SERVE}' sh {users} {self.directory}/sshd_config\n"
        )
        return Route("there", ("-F", str(settings)))


@pytest.fixture
def server(local: LocalMachine, tmp_path: Path) -> Server:
    for name in ("id", "host_key"):
        local.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
    (tmp_path / "known_hosts").write_text(f"there {(tmp_path / 'host_key.pub').read_text()}")
    (tmp_path / "sshd_config").write_text(
        f"HostKey {tmp_path}/host_key\nAuthorizedKeysFile {tmp_path}/id.pub\nStrictModes no\nUsePAM no\n"
        f"PermitTunnel yes\nAcceptEnv *\nSetEnv XDG_STATE_HOME={tmp_path}/state\n"
    )
    local.run("mkdir", "-p", "/run/sshd")
    return Server(local, tmp_path)


@contextlib.contextmanager
def logged_in(server: Server, route: Route) -> Iterator[SshMachine]:
    with contextlib.closing(connect_host(server.local, route)) as machine:
        yield machine


def proved(server: Server, route: Route) -> None:
    """Everything that vmtax does with a machine behind ssh."""
    with logged_in(server, route) as machine:
        assert machine.run("printf", "%s", TEXT) == TEXT
        assert machine.run("cat", input=TEXT) == TEXT
        failed = machine.try_run("sh", "-c", "echo wrong >&2; exit 7")
        assert (failed.code, failed.stdout, failed.stderr) == (7, "", "wrong\n")
        assert machine.try_run("no-such-command").code == 127
        assert machine.try_run("sleep", "60", timeout=0.5).timed_out
        machine.push(Path(__file__), PurePosixPath(server.directory / "pushed"))
        assert (server.directory / "pushed").read_bytes() == Path(__file__).read_bytes()
        process = machine.start("sh", "-c", 'read -r line; echo "$$ $line"; exec sleep 600')
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{process.pid} hello\n".encode()
        process.stop()
        kept = server.directory / "kept"
        kept.touch()
        machine.remove_later(PurePosixPath(kept))
        guards = [pid for pid in Path("/proc").glob("[0-9]*") if is_guard_of(pid, server.directory)]
        assert len(guards) == 1 and len((guards[0] / "cmdline").read_bytes()) < 300
    assert not kept.exists()
    reader = SshReader(route)
    try:
        reader.log_in()
        assert reader.try_run("printf", "%s", TEXT).stdout == TEXT
        assert reader.try_run("sh", "-c", "echo $LC_ALL; exit 3").code == 3
    finally:
        reader.close()


def is_guard_of(process: Path, directory: Path) -> bool:
    with contextlib.suppress(OSError):
        is_ours = f"{directory}/state/vmtax/undo".encode() in (process / "cmdline").read_bytes()
        return is_ours and (process / "comm").read_text() == "vmtax-guard\n"
    return False


NOISE = "echo welcome; printf '{\"hello\": 1}\\n> '; echo noise >&2\n"
SHELLS = {
    "bash": ("/bin/bash", {"dot_bashrc": NOISE}),
    "dash": ("/bin/dash", {}),
    "tcsh": ("/usr/bin/tcsh", {"dot_tcshrc": "echo welcome\nset noclobber\nalias sh false\nalias printf false\n"}),
    "bash that stops at errors": ("/bin/bash", {"dot_bashrc": "set -euCo pipefail\nalias sh=false exec=false\n"}),
    "bash that exports what it should not": (
        "/bin/bash",
        {"dot_bashrc": "set -u\nexport SHELLOPTS l=1 n=2 CDPATH=/tmp ENV=/nowhere\nsh() { false; }\nexport -f sh\n"},
    ),
    "bash that reads": ("/bin/bash", {"dot_bashrc": "read -r -p 'continue? ' answer\nread -r -n 1 key\n"}),
    "bash that becomes bash": ("/bin/bash", {"dot_bashrc": "[ $SHLVL -gt 2 ] || exec bash\n"}),
}


def varied(cases: Iterable[str], first: Container[str]) -> list[ParameterSet]:
    """All cases, of which the first tier has those that differ most."""
    return [pytest.param(case, marks=() if case in first else pytest.mark.machines) for case in cases]


@pytest.mark.parametrize("name", varied(SHELLS, ("bash", "tcsh", "bash that reads")))
def test_any_login_shell_will_do(name: str, server: Server) -> None:
    shell, start = SHELLS[name]
    proved(server, server.route(shell, **start))


CONFIGURATIONS = (
    "RemoteCommand tmux",
    "RequestTTY force",
    "RemoteCommand tmux new -A\nRequestTTY yes",
    "LogLevel DEBUG3",
    "LogLevel QUIET",
    "LogVerbose *:*:*",
    "PermitLocalCommand yes\nLocalCommand touch {}/local",
    "ControlMaster auto\nControlPath {}/control-%C\nControlPersist 1",
    "ControlMaster yes\nControlPath /nowhere/at/all",
    "ForwardX11 yes\nForwardX11Trusted yes",
    "ForwardAgent yes",
    "SendEnv *",
    "SetEnv LC_ALL=xx_XX BASH_ENV={}/nowhere VMTAX_RUN=x IFS=0",
    "StdinNull yes",
    "ForkAfterAuthentication yes",
    "SessionType none",
    "SessionType subsystem",
    "EscapeChar ~",
    "Compression yes",
    "ServerAliveInterval 0",
    "LocalForward 127.0.0.1:1 127.0.0.1:2\nExitOnForwardFailure yes",
    "LocalForward /nowhere/at/all 127.0.0.1:2\nExitOnForwardFailure yes",
    "RemoteForward 22 127.0.0.1:2\nExitOnForwardFailure yes",
    "DynamicForward 10.255.255.1:1080\nExitOnForwardFailure yes\nGatewayPorts yes",
    "ClearAllForwardings no",
    "Tunnel yes\nTunnelDevice any:any",
    "BatchMode no\nVisualHostKey yes",
    "IgnoreUnknown UseKeychain\nUseKeychain yes",
    "UpdateHostKeys yes\nStrictHostKeyChecking accept-new",
    "StreamLocalBindUnlink no\nStreamLocalBindMask 0777",
    "IPQoS none\nTCPKeepAlive no\nRekeyLimit 1M",
    "Match final exec true\nRemoteCommand none",
)


# The options of all others that do not contradict each other
ALL = """\
RemoteCommand tmux
RequestTTY force
LogLevel DEBUG3
PermitLocalCommand yes
LocalCommand touch {}/local
ControlMaster auto
ControlPath {}/c
ControlPersist 1
ForwardX11 yes
ForwardAgent yes
SetEnv LC_ALL=xx_XX IFS=0
StdinNull yes
LocalForward /nowhere/at/all 127.0.0.1:2
ExitOnForwardFailure yes
Tunnel yes"""


@pytest.mark.parametrize("lines", varied((*CONFIGURATIONS, ALL), (ALL,)))
def test_any_configuration_will_do(lines: str, server: Server) -> None:
    route = server.route(lines=lines.replace("{}", str(server.directory)))
    before = set(server.directory.iterdir())
    proved(server, route)
    added = {path.name for path in set(server.directory.iterdir()) - before}
    assert added <= {"pushed", "state"}, "nothing of the user's is started"


def test_a_socket_is_forwarded_in_spite_of_others_in_the_configuration(server: Server) -> None:
    route = server.route(
        lines="LocalForward 127.0.0.1:1 127.0.0.1:2\nExitOnForwardFailure yes\nRemoteForward 1 [::1]:2"
    )
    with logged_in(server, route) as machine:
        here = PurePosixPath(server.directory / "socket")
        end = machine.forward(here, PurePosixPath("/nowhere"))
        assert Path(here).is_socket()
        end()


REFUSE = {
    "nologin": ("/usr/sbin/nologin", {}, "This account is currently not available"),
    "false": ("/bin/false", {}, "nothing"),
    "rbash": ("/usr/bin/rbash", {}, "exec: restricted"),
    "bash that becomes tcsh": ("/bin/bash", {"dot_bashrc": "exec tcsh\n"}, "nothing"),
    "a shell that exits": ("/bin/bash", {"dot_bashrc": "echo closed for maintenance; exit\n"}, "closed for"),
}


@pytest.mark.parametrize("name", varied(REFUSE, ("nologin", "a shell that exits")))
def test_a_login_that_executes_nothing_is_told_in_its_words(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtax.machine.reader.LOGIN_SECONDS", 2.0)
    shell, start, words = REFUSE[name]
    route = server.route(shell, **start)
    with pytest.raises(MachineLost, match=f"host: ssh there: it said .*{words}.* its shell must execute commands"):
        connect_host(server.local, route)
    reader = SshReader(route)
    with contextlib.closing(reader), pytest.raises(MachineLost, match=f"host: ssh there: .*{words}"):
        reader.log_in()


def test_start_up_files_that_take_all_input_are_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtax.machine.reader.LOGIN_SECONDS", 2.0)
    route = server.route(dot_bashrc="cat > /dev/null\n")
    with pytest.raises(MachineLost, match=r"it said nothing: .* start-up files leave standard input alone"):
        connect_host(server.local, route)
    reader = SshReader(route)
    with (
        contextlib.closing(reader),
        pytest.raises(MachineLost, match=r"no answer within 2 s; it said nothing: .* leave standard input alone"),
    ):
        reader.log_in()


def test_the_entry_is_short_and_has_nothing_that_a_shell_reads_differently() -> None:
    assert len(remote_command.ENTRY) < 120
    assert not set(remote_command.ENTRY) & set("!\\\n\t#~^{}[]<>?&|")
    assert remote_command.ENTRY.count("'") == 2
