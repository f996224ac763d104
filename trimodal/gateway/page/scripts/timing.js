// Where the time of a request went: parts that add up to the total; percentiles; times in words.

const MIN_RATE_MS = 50; // tokens that came together have no rate that could be told from here

// Times are of this page's clock; `note` is the field "trimodal" that the gateway sends at the end.
export function measure({ sent, first, end, tokens, note }) {
  const total = end - sent;
  return {
    total,
    ttft: first === null ? null : first - sent,
    rate: first === null ? null : rate(tokens, end - first),
    tokens,
    parts: first === null ? [["no token", total]] : [...beforeFirst(first - sent, note), ["tokens", end - first]],
  };
}

// Tokens a second after the first one, or null.
export const rate = (tokens, ms) => (tokens > 1 && ms >= MIN_RATE_MS ? (1000 * (tokens - 1)) / ms : null);

// What the gateway's clock does not count of the time to the first token is the way there and back.
function beforeFirst(ttft, note) {
  if (typeof note.ttft_ms !== "number") return [["to the first token", ttft]];
  let left = ttft;
  const parts = [];
  const take = (name, ms) => {
    const part = Math.min(Math.max(ms || 0, 0), left);
    left -= part;
    parts.push([name, part]);
  };
  take("network", ttft - note.ttft_ms);
  const stages = note.stages_ms ?? {};
  const found = Math.max(stages.heard ?? 0, stages.saw ?? 0); // side by side
  if (found) take("hear and see", found);
  take("queue", note.queue_ms);
  parts.push(["first token", left]);
  return parts;
}

// Nearest rank, as the server's own figures.
export function percentile(values, percent) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)];
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
}

export const perSecond = (value) => (value === null ? "–" : value >= 100 ? value.toFixed(0) : value.toFixed(1));
