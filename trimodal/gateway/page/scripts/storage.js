// What this tab keeps until it is closed, a few megabytes; where the browser lets pages keep nothing, until it is
// loaded again.

const memory = new Map();
let kept = null;
try {
  kept = window.sessionStorage;
} catch {
  // SecurityError: the user blocks all sites' data
}

export const read = (name) => (kept ? kept.getItem(name) : (memory.get(name) ?? null));

export const names = () => (kept ? Object.keys(kept) : [...memory.keys()]);

export function forget(name) {
  if (kept) kept.removeItem(name);
  else memory.delete(name);
}

// Whether there was room. Without, what was stored under the name before is gone.
export function store(name, text) {
  try {
    if (kept) kept.setItem(name, text);
    else memory.set(name, text);
    return true;
  } catch {
    forget(name);
    return false;
  }
}
