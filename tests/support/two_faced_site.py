"""A site that sends some neighbours other messages than the others, and signs both."""

from functools import partial

import msgpack
import numpy as np
from crash_cluster import Mortal

from diamond.sites.identity import certificate_authority, roster
from diamond.sites.transport import wire_format
from diamond.sites.transport.wire_format import Envelope
from diamond.sites.trust.signed_messages import sign_messages
from diamond.sites.trust.signed_records import StatementSigner, digest_of


def found_signers(folder, network, name="trial"):
    """The signers of all sites of a new federation, by number; and the authority's certificate."""
    sites = {f"site{i}": f"127.0.0.1:{7000 + i}" for i in range(network.agents)}
    places = certificate_authority.create_federation(folder, name, sites, network)
    bundles = [roster.load_bundle(place) for place in places.values()]
    signers = {b.me.number: StatementSigner(lambda b=b: b) for b in bundles}
    return signers, bundles[0].ca


def signing(signers):
    """What nodes take to sign their messages."""
    return {number: partial(sign_messages, signer) for number, signer in signers.items()}


class TwoFaced(Mortal):
    """A node that lies to `victims` from exchange `first` on, by `lie`."""

    victims, first = (0,), 1
    lie = staticmethod(lambda array, t: array + np.asarray(1, array.dtype))

    def __post_init__(self):
        super().__post_init__()
        self.false_frames, self.recipient = {}, None
        outbox, service, runner = self.service.outbox, self.service, self.exchange_runner
        originals = outbox.get, service._send_available, service._available_response
        publish = runner.publish

        def get(t, step=0):
            is_false = self.deceives(self.recipient, t) and (t, step) in self.false_frames
            return self.false_frames[t, step] if is_false else originals[0](t, step)

        def send_available(j, publisher):
            self.recipient = j
            originals[1](j, publisher)

        async def available_response(request):
            self.recipient = request.sender
            return await originals[2](request)

        def publish_both(t, arrays, step=0):
            if t >= self.first and arrays and self.signatures.is_signed(t):
                lies = [self.lie(array, t) for array in arrays]
                envelope = Envelope(self.run_digest, self.agent.number, t, step)
                attach = partial(self.attach, t, step)
                self.false_frames[t, step] = wire_format.encode(envelope, lies, attach)
            return publish(t, arrays, step)

        outbox.get, service._send_available = get, send_available
        service._available_response, runner.publish = available_response, publish_both

    def deceives(self, j, t):
        return j in self.victims

    def attach(self, t, step, parts):
        signer = self.signatures.signer
        statement = signer.sign(self.run_digest, t, step, digest_of(*parts))
        signature = statement.version, statement.signature, signer.certificate
        return msgpack.packb([*signature, [], [], []])
