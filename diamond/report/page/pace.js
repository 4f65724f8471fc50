// How fast the runs of the live page go, and how long they will take yet.

const paces = new Map(); // by run: the first evaluation seen here, and the newest, with their times

// Rounds a second: as seen from here, measuring included; at first, those of the rounds alone.
function pace(run) {
  const now = { round: last(run, "round") ?? 0, time: performance.now() / 1000 };
  const known = paces.get(run.id) ?? { first: now, newest: now };
  if (now.round < known.newest.round) known.first = now; // gone back
  if (now.round !== known.newest.round) known.newest = now;
  paces.set(run.id, known);
  const { first, newest } = known;
  if (newest.round > first.round) return (newest.round - first.round) / (newest.time - first.time);
  return now.round / (last(run, "seconds") || Infinity);
}

function duration(seconds) {
  if (seconds < 99.5) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// "live: 1 running, 1,234 rounds/s, about 3 min left"
function standing(runs) {
  const going = runs.filter((run) => run.status === "running");
  if (!going.length) return "live: none running";
  const each = going.map((run) => ({ rate: pace(run), rest: run.rounds - (last(run, "round") ?? 0) }));
  const known = each.filter(({ rate }) => rate > 0);
  if (!known.length) return `live: ${going.length} running`;
  const rate = known.reduce((sum, one) => sum + one.rate, 0);
  const left = Math.max(...known.map((one) => one.rest / one.rate));
  const fast = rate < 10 ? rate.toPrecision(2) : Math.round(rate).toLocaleString("en");
  return `live: ${going.length} running, ${fast} rounds/s, about ${duration(left)} left`;
}
