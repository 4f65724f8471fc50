// What the links of a network carry: how long that takes, and what is lost on the way.

// What a link of the network is like: rate, loss and so on are one number for all, or a list.
function linkOf({ edges, links }, edge) {
  if (!links) return null;
  const e = edges.indexOf(edge);
  return Object.fromEntries(Object.entries(links).map(([key, value]) => [key, Array.isArray(value) ? value[e] : value]));
}

// Seconds of sending over a link, both ways together, with what was lost and sent again.
const busy = ({ rate, loss }, bytes) => (8 * bytes) / (rate * (1 - loss));

function linkText(link, bytes) {
  const again = link.loss ? `, ${amount("bytes", (bytes * link.loss) / (1 - link.loss))} sent again` : "";
  return `${again}, ${amount("seconds", busy(link, bytes))} at ${format(link.rate)} bit/s`;
}

const LISTED = 200; // links in the table, those that lost most

const share = (sent, lost) => `${format(sent ? (100 * lost) / sent : 0)}\u00a0%`;

// Messages over each edge, both ways, and how many of them were lost on their way, in words.
function lossTexts(run) {
  const lossText = ([i, j, sent, lost]) => [`${i}-${j}`, `, ${lost} of ${sent} messages lost (${share(sent, lost)})`];
  return new Map(run.losses.map(lossText));
}

function lostInAll(run) {
  if (!run.losses.length) return "";
  const [sent, lost] = [2, 3].map((k) => run.losses.reduce((total, row) => total + row[k], 0));
  return ` Of ${sent} messages ${lost} were lost (${share(sent, lost)}).`;
}

// Shown where messages can be lost: what became of those of each link.
function showLinks(run, network) {
  const named = (edge) => edge.map((i) => agentName(network, i)).join(network.kind === "directed" ? " → " : " – ");
  const bytes = new Map(run.traffic.map(([i, j, sent]) => [`${i}-${j}`, sent]));
  const worst = [...run.losses].sort((a, b) => b[3] / b[2] - a[3] / a[2]).slice(0, LISTED);
  const shown = run.losses.length > LISTED ? worst : run.losses;
  const body = shown.map(([i, j, sent, lost]) => [
    named([i, j]), String(sent), String(lost), share(sent, lost), amount("bytes", bytes.get(`${i}-${j}`)),
  ]);
  $("links-part").hidden = !body.length;
  $("links-title").textContent =
    shown === worst ? `The ${LISTED} links that lost most, of ${run.losses.length}` : "Each link, over the whole run";
  fillTable("links", ["link", "messages", "lost", "share lost", "bytes sent"], body);
}
