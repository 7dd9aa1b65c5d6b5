"""Checks of the settings by which servers decide who is logged in: providers, super users, requirements.

Sources: ZooKeeper's administrator's guide, AuthenticationHelper, DigestAuthenticationProvider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zkmigrate.keyed_digest import is_secret
from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.jaas import NO_SASL, settings_of
from zkmigrate.move.preflight.security import quorum_uses_sasl
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Context

FIPS = "fips-mode"
FIPS_FROM = (3, 9)
"""ZooKeeper's first release with FIPS mode on by default."""


@check("dest.fips", "FIPS mode is off on the dest host if its servers log in with DIGEST-MD5", Scope.DEST,
       ALWAYS)  # fmt: skip
def fips(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. From 3.9 on FIPS mode is on by default, and servers then refuse DIGEST-MD5. Such a dest host does
    not join, and dest never elects a leader. Older releases ignore the key.

    To do: Set fips-mode=false in dest.settings.
    """
    moves = (f"set {FIPS}=false in dest.settings; releases before 3.8.2 ignore it",)
    needed = f"{FIPS}=false, or a release before 3.9"
    for host in e.dest_config:
        values = e.secured[host].values
        if not isinstance(values, Seen):
            yield unseen(values, needed, host)
            continue
        given, release = values.value.get(FIPS, "").lower(), e.dest_releases[host]
        seen = f"{FIPS}={given}" if given else f"no {FIPS}"
        if not quorum_uses_sasl(values.value):
            yield Judged(True, f"{NO_SASL} between servers", needed, host)
        elif given:
            yield Judged(given != "true", seen, needed, host, moves)
        elif isinstance(release, Seen):
            version = ".".join(map(str, release.value))
            yield Judged(release.value < FIPS_FROM, f"{seen}, ZooKeeper {version}", needed, host, moves)
        else:
            yield Judged(None, f"{seen}; release: {why(release)}", needed, host, moves)


def differences(e: Evidence, host: str, keys: Mapping[str, str]) -> Iterator[str]:
    """Yield each setting that a dest host has otherwise than a source host.

    keys: the settings with ZooKeeper's defaults. Values that may be secrets are not shown.
    """
    own = settings_of(e.secured[host])
    known = [other for other in e.source_config if isinstance(e.secured[other].values, Seen)]
    for key, default in keys.items() if isinstance(e.secured[host].values, Seen) else ():
        mine = own.get(key) or default
        for other in known:
            theirs = settings_of(e.secured[other]).get(key) or default
            if mine.lower() == theirs.lower():
                continue
            if not is_secret(key):
                yield f"{key}: {mine or 'none'}, {other} {theirs or 'none'}"
            elif mine and theirs:
                yield f"{key}: another one than {other} has"
            else:
                yield f"{key}: {'only this host' if mine else f'only {other}'} has it"


def unread(e: Evidence, host: str, needed: str) -> Judged | None:
    """Return an unknown verdict if settings of this dest host or of a source host could not be read."""
    own = e.secured[host].values
    if not isinstance(own, Seen):
        return unseen(own, needed, host)
    for other in e.source_config:
        values = e.secured[other].values
        if not isinstance(values, Seen):
            return Judged(None, f"settings of {other}: {why(values)}", needed, host)
    return None


def _same(e: Evidence, host: str, keys: Mapping[str, str], alike: str, moves: tuple[str, ...]) -> Judged:
    needed = "the same as on every source host"
    wrong = list(dict.fromkeys(differences(e, host, keys)))
    if wrong:
        return Judged(False, "; ".join(wrong), needed, host, moves)
    return unread(e, host, needed) or Judged(True, alike, needed, host)


QUORUM_LOGIN = {
    "quorum.auth.enableSasl": "false",
    "quorum.auth.learnerRequireSasl": "false",
    "quorum.auth.serverRequireSasl": "false",
}


@check("dest.quorum-login", "dest's servers log in to each other as source's do", Scope.DEST, ALWAYS)
def quorum_login(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. If source's members require SASL, a dest host without it never joins. If dest requires less than
    source, its quorum is open to others after the move.

    To do: Set quorum.auth.* in dest.settings as source has them.
    """
    moves = ("set these keys in dest.settings as source has them",)
    for host in e.dest_config:
        yield _same(e, host, QUORUM_LOGIN, "quorum.auth.* as on source", moves)


REQUIRED = {
    "sessionRequireClientSASLAuth": "false",
    "enforce.auth.enabled": "false",
    "enforce.auth.schemes": "",
    "allowSaslFailedClients": "false",
    "requireClientAuthScheme": "",
}


@check("dest.required-login", "dest requires of its clients the login that source requires", Scope.DEST,
       ALWAYS)  # fmt: skip
def required_login(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A dest host that requires a login where source does not closes the connections of clients without
    one. One that requires less lets strangers in. With enforce.auth.enabled and without
    enforce.auth.schemes the server ends at its start with exit code 2.

    To do: Set sessionRequireClientSASLAuth and enforce.auth.* in dest.settings as source has them.
    """
    moves = ("set these keys in dest.settings as source has them",)
    for host in e.dest_config:
        own = settings_of(e.secured[host])
        enabled = own.get("enforce.auth.enabled", "").lower() == "true"
        if enabled and not own.get("enforce.auth.schemes"):
            seen = "enforce.auth.enabled without enforce.auth.schemes: the server would not start"
            moves = ("set enforce.auth.schemes in dest.settings, such as sasl",)
            yield Judged(False, seen, "enforce.auth.schemes", host, moves)
        else:
            yield _same(e, host, REQUIRED, "the same requirements as on source", moves)


@check("dest.auth-providers", "dest knows every scheme of ACLs that source knows", Scope.DEST, ALWAYS)
def auth_providers(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. Reads are checked by the server that is asked. Without the line authProvider.N, clients log in at
    a dest host without an error. Then it refuses reads of the znodes that they own, and after the cut-over
    everything. The x509 provider needs TLS of clients on dest.

    To do: Set authProvider.N in dest.settings as source has it.
    """
    needed = "the providers of every source host"
    moves = ("set authProvider.N in dest.settings as source has it",)
    for host in e.dest_config:
        own = _providers(settings_of(e.secured[host]))
        if not isinstance(e.secured[host].values, Seen):
            yield unseen(e.secured[host].values, needed, host)
            continue
        wrong = [
            f"no {name}, which {other} has"
            for other in e.source_config
            for name in _providers(settings_of(e.secured[other]))
            if name not in own
        ]
        if wrong:
            yield Judged(False, "; ".join(wrong), needed, host, moves)
        else:
            alike = Judged(True, ", ".join(sorted(own)) or "none", needed, host)
            yield unread(e, host, needed) or alike


def _providers(values: Mapping[str, str]) -> set[str]:
    return {value.rpartition(".")[2] for key, value in values.items() if key.startswith("authProvider.")}


SUPER_USERS = {
    "DigestAuthenticationProvider.superDigest": "",
    "DigestAuthenticationProvider.digestAlg": "SHA1",
    "X509AuthenticationProvider.superUser": "",
    "superUser": "",
}


@check("dest.super-user", "dest has source's super users", Scope.DEST, ALWAYS)
def super_user(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. The super user belongs to the server that is asked. On a dest host without it, a client of the
    super user gets NoAuth. The check compares values without showing them.

    To do: Set the keys that the finding names in dest's JVM flags as source has them.
    """
    moves = ("set these keys in dest's JVM flags (superDigest) or dest.settings as source has them",)
    for host in e.dest_config:
        yield _same(e, host, SUPER_USERS, "the same super users", moves)


CHECKS = (fips, quorum_login, required_login, auth_providers, super_user)
