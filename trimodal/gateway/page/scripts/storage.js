// What this tab keeps until it is closed: a few megabytes.

// Whether there was room. Without, what was stored under the name before is gone.
export function store(name, text) {
  try {
    sessionStorage.setItem(name, text);
    return true;
  } catch {
    sessionStorage.removeItem(name);
    return false;
  }
}
