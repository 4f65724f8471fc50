"""Run of a site whose federation changes its members: one node per epoch.

An epoch ends as a run ends: every neighbour has finished it and knows that this site has. Then the
site enters the next epoch (`epoch_entry`), whose node has other neighbours and another digest. What
a neighbour still asks about an earlier epoch, all of which have ended for it too, is answered from
the entry: that this site has finished. What it asks about an epoch that this site has not entered
yet is answered once this site has.

With `missing = "continue"` a site may be absent at a change. When it returns, those that have
entered the new epoch answer that its edges were down until then, so it runs the missed rounds alone
and enters the epoch too. If it learns of the change only after it has begun the round of the change
without the others, it leaves the old epoch at once and enters the new one late: all its edges are
down in the rounds before its first unsent message. No vote is needed, since trackers restart: the
members keep sum u = sum p from the change on, in whatever state each of them enters the epoch.

If a site has gone for good, the others wait for it and never finish the epoch. A roster without it
may then begin at a round that all of them have a checkpoint of (`rewind`): they stop, return to it,
and go on without the lost site.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from ...network.membership_epochs import Epoch
from ...records import checkpoint_file
from ..identity.site_names import site_name
from ..memory import epoch_entry, site_checkpoint
from ..memory.epoch_entry import EpochEntry
from ..memory.site_checkpoint import STATE_FOLDER
from ..transport import messages, wire_format
from ..transport.errors import Refused
from ..transport.messages import DOWN, RoundRequest, Vote
from ..transport.subscription import Publisher
from ..transport.wire_format import MAX_REQUEST_BYTES, Envelope, EpochPending, Frame
from .edge_states import MAX_DOWN_ROUNDS
from .node import Node, start_name
from .round_progress import AgentProgress
from .site_agent import Agent

MakeNode = Callable[[Epoch | None, int, EpochEntry | None, Path | None], Node]


class EpochRun:
    """Run of agent `number` over the epochs that it knows of, each with its own node.

    `make_node(epoch, rounds, entry, folder)` makes the node of an epoch, None being the first one;
    `rounds` is the last round of the epoch. A new epoch may be added while a node runs, as long as
    its round has not begun here.
    """

    def __init__(
        self,
        number: int,
        epochs: Sequence[Epoch],
        rounds: int,
        make_node: MakeNode,
        *,
        folder: Path | None = None,
    ):
        self.number, self.epochs, self.rounds = number, list(epochs), rounds
        self.make_node, self.folder = make_node, folder
        self.index, self.past = self._first_index(), dict[str, int]()
        self.node = self._build_node(None)
        self.on_epoch: Callable[[Node], None] = lambda node: None  # called with each later node
        self.on_rewind: Callable[[], Awaitable[None]] | None = None  # awaited after a rewind
        self._node_task: asyncio.Task[AgentProgress] | None = None
        self._rewound: EpochEntry | None = None
        self._is_late = False  # the node stops in a round that the next epoch has
        self._entered = asyncio.Event()  # another epoch

    def _first_index(self) -> int:
        """Return the epoch to continue with: the last one entered, or the first as a member."""
        own = [k for k, epoch in enumerate(self.epochs) if self.number in epoch.members]
        if not own:
            raise ValueError(f"agent {self.number} is no member in any round")
        entered = [k for k in own if epoch_entry.has_entry(self.folder, self.epochs[k].from_round)]
        return max([own[0], *entered])

    @property
    def epoch(self) -> Epoch:
        """Return the current epoch."""
        return self.epochs[self.index]

    @property
    def next_epoch(self) -> Epoch | None:
        """Return the next epoch before the last round, if any is known."""
        later = self.epochs[self.index + 1 :][:1]
        return later[0] if later and later[0].from_round < self.rounds else None

    @property
    def end(self) -> int:
        """Return the round after the last one of the current epoch."""
        return self.next_epoch.from_round if self.next_epoch else self.rounds

    def add_epoch(self, epoch: Epoch) -> None:
        """Add an epoch that begins after the last one known.

        If its round has begun here, which only happens if rounds continue without absent sites,
        this site leaves the current epoch at once.
        """
        is_begun = epoch.from_round <= self.node.t
        is_late = is_begun and self.node.edges is not None
        earliest = max(self.epochs[-1].from_round, 0 if is_late else self.node.t)
        if epoch.from_round <= earliest:
            raise ValueError(f"round {epoch.from_round} is not after round {earliest}")
        if epoch.from_round >= self.rounds:
            raise ValueError(
                f"round {epoch.from_round} is not before round {self.rounds}, the last"
            )
        self.epochs.append(epoch)
        if self.next_epoch is not epoch:
            return
        if not is_begun:
            return self.node.end_after(epoch.from_round)
        self._is_late = True
        if self._node_task is not None:
            self._node_task.cancel()

    def prepare_rewind(self, epoch: Epoch) -> EpochEntry:
        """Write the entry of an epoch that begins at a checkpoint of this epoch; return it.

        Raises ValueError unless this site has the checkpoint of that round.
        """
        node, first = self.node, epoch.from_round
        folder = self.folder and epoch_entry.epoch_folder(self.folder, self.epoch.from_round)
        if self.next_epoch is not None or not self.epoch.from_round < first <= node.t:
            raise ValueError(
                f"this site is in round {node.t} of an epoch from {self.epoch.from_round} on and "
                f"cannot return to round {first}"
            )
        if folder is None or first not in checkpoint_file.saved_rounds(folder / STATE_FOLDER):
            raise ValueError(f"this site has no checkpoint of round {first} any more")
        last = site_checkpoint.load_round(folder, first, node.agent.initial_progress())
        joining = frozenset({*epoch.members} - {*self.epoch.members})
        entry = epoch_entry.enter_epoch(joining, node.agent, last, self.past)
        assert self.folder is not None
        epoch_entry.save_entry(self.folder, first, entry)
        return entry

    def rewind(self, epoch: Epoch, entry: EpochEntry) -> None:
        """Stop the rounds of the current epoch, and enter one that began at a checkpoint of it."""
        self.epochs.append(epoch)
        self._rewound = entry
        if self._node_task is not None:
            self._node_task.cancel()

    def _build_node(self, entry: EpochEntry | None) -> Node:
        """Build the node of the current epoch; `entry` None: read it, or join."""
        first = self.epoch.from_round
        folder = self.folder and epoch_entry.epoch_folder(self.folder, first)
        if self.index == 0:
            return self._connect_edges(self.make_node(None, self.end, None, folder))
        joining = frozenset({*self.epoch.members} - {*self.epochs[self.index - 1].members})
        joins = EpochEntry(joining)
        node = self.make_node(self.epoch, self.end, entry or joins, folder)
        if self.folder and entry is None and epoch_entry.has_entry(self.folder, first):
            like = node.agent.initial_progress()
            node.entry = epoch_entry.load_entry(self.folder, first, like)
        assert node.entry is not None
        self.past = dict(node.entry.past)
        node.agent.earlier_bytes = node.entry.bytes_sent
        self._connect_edges(node)
        return node

    def _connect_edges(self, node: Node) -> Node:
        """Let a node that is bound by the decision of a lost site go on if that site leaves."""
        if node.edges is not None:
            node.edges.is_leaving = lambda j: j not in self.epochs[-1].members
        return node

    async def run(self) -> AgentProgress:
        """Run all epochs in which this agent is a member; return its last progress."""
        while True:
            self._node_task = asyncio.ensure_future(self.node.run())
            try:
                progress = await self._node_task
            except asyncio.CancelledError:
                task = asyncio.current_task()
                is_left = self._rewound is not None or self._is_late
                if not is_left or (task is not None and task.cancelling()):
                    raise
                assert self.node.progress is not None
                progress, spent = self.node.progress, self.node.exchange_runner.spent
                progress = progress if spent is None else progress._replace(spent=spent)
            if self._rewound is not None:
                entry, self._rewound = self._rewound, None
                if self.on_rewind is not None:
                    await self.node.shutdown.run_or_halt(self.on_rewind())
                index = self.index + 1
            else:
                if self.next_epoch is None:
                    return progress
                is_late = self._is_late or self.node.is_late
                self._is_late, index = False, self.index + 1
                first = self.node.first_unsent_round if is_late else 0
                begun = [k for k, epoch in enumerate(self.epochs) if epoch.from_round <= first]
                index = max(index, *begun, 0)
                following = self.epochs[index]
                if self.number not in following.members:
                    return progress
                joining = frozenset({*following.members} - {*self.epochs[index - 1].members})
                if is_late:
                    self.node.clock.shorten(self.end)
                past = self.past | {self.node.run_digest: self.node.clock.last_tick}
                entry = epoch_entry.enter_epoch(joining, self.node.agent, progress, past, first)
                if self.folder is not None:
                    await self.node.run_blocking(
                        epoch_entry.save_entry, self.folder, following.from_round, entry
                    )
            before = self.node
            self.index = index
            node = self._build_node(entry)
            node.seconds = before.seconds
            node.exchange_runner.seconds_waited = before.seconds_waited
            node.on_round, node.before_round = before.on_round, before.before_round
            if before.shutdown.requested:
                node.shutdown.request()
            self.on_epoch(node)
            self.node = node
            self._entered.set()
            self._entered = asyncio.Event()

    async def answer_request(self, sender: int, request: Frame) -> Frame | Publisher:
        """Answer a neighbour in this epoch, or about one that has ended or has yet to begin."""
        if len(self.epochs) == 1:
            return await self.node.answer_request(sender, request)
        header, _ = wire_format.unpack(request, MAX_REQUEST_BYTES)
        message = messages.decode_request(header)
        run, receive_roster = getattr(message, "run", None), self.node.service.receive_roster
        if isinstance(message, messages.RosterOffer) and message.sender == sender:
            if receive_roster is not None:  # also of who is a neighbour in other epochs only
                return receive_roster(message)
        if isinstance(run, str) and run != self.node.run_digest and message.sender == sender:
            if run in self.past:
                return self._answer_about_past(run, message)
            edges, later = self.node.edges, self.epochs[self.index + 1 :]
            if isinstance(message, messages.Greeting) and edges is not None and not edges.stuck:
                if message.parts.get("start") in [start_name(epoch.from_round) for epoch in later]:
                    return await self._answer_once_entered(sender, request)
            if any(sender in epoch.members for epoch in later):
                raise EpochPending(f"agent {self.number} is not in round {self.end} yet")
            if sender not in self.epoch.members and edges is None:
                name, first = site_name(self.node.names, sender), self.epoch.from_round
                raise Refused(f"{name} is no member from round {first} on")
            if self.index > 0:  # a neighbour that has yet to hear of a rewind
                raise EpochPending(f"agent {self.number} has entered another epoch")
        return await self.node.answer_request(sender, request)

    async def _answer_once_entered(self, sender: int, request: Frame) -> Frame | Publisher:
        """Answer in another epoch; empty if this agent enters none for a while."""
        try:
            async with asyncio.timeout(self.node.timeouts.round / 2):
                await self._entered.wait()
        except TimeoutError:
            return b""
        return await self.answer_request(sender, request)

    def _answer_about_past(self, run: str, message: messages.Request) -> Frame:
        """Answer that this agent has finished an epoch that has ended.

        Its edges to an agent that has not are down until the end of that epoch.
        """
        last_tick = self.past[run]
        match message:
            case messages.Greeting():
                return messages.GreetingAnswer(last_tick, 0).encode()
            case messages.MessageRequest(round=round) if round == last_tick:
                return wire_format.encode(Envelope(run, self.number, last_tick), [])
            case RoundRequest(round=round) if round < last_tick and self.node.edges is not None:
                return Vote(DOWN, min(last_tick, round + MAX_DOWN_ROUNDS)).encode()
        raise EpochPending(f"agent {self.number} has finished that epoch")


def make_epoch_node(
    make_agent: Callable[[Epoch | None], Agent], rounds: int, transport: Any, **options: Any
) -> MakeNode:
    """Return a function that makes the node of an epoch; `rounds` are those of the whole run."""

    def make_node(
        epoch: Epoch | None, end: int, entry: EpochEntry | None, folder: Path | None
    ) -> Node:
        return Node(
            make_agent(epoch), end, transport, folder, entry=entry, total_rounds=rounds, **options
        )

    return make_node
