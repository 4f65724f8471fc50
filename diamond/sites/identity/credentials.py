"""Credentials of a running site: new connections use new keys as soon as they are in the bundle.

The bundle's folder is watched. New files replace the credentials if they are complete, of the same
federation and site, and their roster is not older. Open connections continue until they end, or
until the new roster no longer accepts the key of their other end.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

from ..transport.audit import Audit
from ..transport.tls import tls_context
from .private_keys import BadBundle
from .roster import RENEWED_FILES, Bundle, SignedRoster, load_bundle, load_signed_roster

OnChange = Callable[[Bundle, SignedRoster, bool], None]  # whether it is from the operator
WATCH_SECONDS = 2.0  # between two looks at the files of the bundle


class Credentials:
    """Bundle of a site and its TLS contexts; `listeners` are called after a renewal."""

    def __init__(self, bundle: Bundle):
        self.listeners: list[Callable[[], None]] = []
        self.on_change: OnChange | None = None  # accepts a change of members, or raises
        self.server_tls, self.client_tls = _tls_contexts(bundle)
        self.bundle = bundle

    def renew(
        self, bundle: Bundle, signed: SignedRoster | None = None, from_operator: bool = True
    ) -> None:
        """Use another bundle of the same site for new connections; raise `BadBundle` if it is not.

        An older roster is refused, so that nobody can bring back a key that it lists. One that
        changes the members, in `signed` form, must be accepted by `on_change`.
        """
        old = self.bundle
        members = list(zip(bundle.roster.members, old.roster.members))
        if bundle.roster.version < old.roster.version:
            raise BadBundle(
                f"roster {bundle.roster.version} is older than {old.roster.version}, which this "
                f"site has; copy the newest bundle"
            )
        unchanged = [
            (bundle.ca, old.ca),
            (bundle.roster.federation, old.roster.federation),
            (bundle.roster.terms, old.roster.terms),
            (bundle.me.number, old.me.number),
            *((m.name, n.name) for m, n in members),
        ]
        changes_members = bundle.roster.epochs != old.roster.epochs and self.on_change is not None
        if not changes_members:
            unchanged += [
                *((m.neighbours, n.neighbours) for m, n in members),
                (len(bundle.roster.members), len(old.roster.members)),
            ]
        if any(new != earlier for new, earlier in unchanged):
            raise BadBundle(
                "the new bundle is of another federation, site, network or run; only keys and "
                "addresses change while a site runs"
            )
        try:
            contexts = _tls_contexts(bundle)
        except ssl.SSLError:
            raise BadBundle("the key and the certificate do not belong together yet") from None
        if changes_members and self.on_change is not None:
            assert signed is not None
            self.on_change(bundle, signed, from_operator)
        self.server_tls, self.client_tls = contexts
        self.bundle = bundle
        for on_renewal in self.listeners:
            on_renewal()

    async def watch(self, folder: Path, audit: Audit, seconds: float = WATCH_SECONDS) -> None:
        """Take new files of the bundle in `folder` as soon as they are complete."""
        seen = refused = file_versions(folder, RENEWED_FILES)
        while True:
            await asyncio.sleep(seconds)
            if (versions := file_versions(folder, RENEWED_FILES)) == seen:
                continue
            try:
                self.renew(load_bundle(folder), load_signed_roster(folder)[0])
            except BadBundle as cause:  # perhaps half copied: tried again
                if versions != refused:
                    refused = versions
                    audit.record_event(str(folder), f"new files are not used: {cause}")
                continue
            seen, roster = versions, self.bundle.roster
            audit.record_event(
                str(folder),
                f"new connections use roster {roster.version} and the certificate that ends on "
                f"{self.bundle.expires:%Y-%m-%d}",
            )


def as_credentials(bundle: Bundle | Credentials) -> Credentials:
    """Return the credentials of a bundle."""
    return bundle if isinstance(bundle, Credentials) else Credentials(bundle)


def file_versions(folder: Path, names: Iterable[str]) -> list[tuple[int, ...]]:
    """Return numbers that change whenever one of the files is replaced or written."""
    versions: list[tuple[int, ...]] = []
    for name in names:
        try:
            status = (folder / name).stat()
            versions.append((status.st_mtime_ns, status.st_ino, status.st_size))
        except OSError:
            versions.append(())
    return versions


def _tls_contexts(bundle: Bundle) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the settings of connections that this site accepts, and of those that it dials."""
    return tls_context(bundle, is_server=True), tls_context(bundle, is_server=False)
