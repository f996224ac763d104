// Makes elements: any, a row of figures, a waterfall.

import { milliseconds } from "./timing.js";

// A button that copies a text, in a list; none where the browser lets no page copy (plain HTTP elsewhere).
export function copyButton(text) {
  if (!navigator.clipboard) return [];
  const button = make("button", "quiet copy", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    const done = await navigator.clipboard.writeText(text()).then(() => true, () => false);
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return [button];
}

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

// A name, and values below their columns.
export function figureRow(name, values) {
  const row = make("tr");
  const head = make("th", "", name);
  head.scope = "row";
  row.append(head, ...values.map((value) => make("td", "", value)));
  return row;
}

// One row for each part: its name, a bar where it lies in the whole, its time.
export function waterfall(timing) {
  const table = make("table", "waterfall");
  table.createCaption().textContent = "Where the time went";
  const body = table.createTBody();
  let start = 0;
  for (const [name, ms] of timing.parts) {
    const bar = make("span", "bar");
    bar.dataset.part = name;
    // Share of the whole; through the object model, which the page's policy allows.
    bar.style.marginInlineStart = `${(100 * start) / timing.total}%`;
    bar.style.inlineSize = `${(100 * ms) / timing.total}%`;
    addRow(body, name, bar, milliseconds(ms));
    start += ms;
  }
  addRow(table.createTFoot(), "total", "", milliseconds(timing.total));
  return table;
}

function addRow(section, name, middle, time) {
  const row = section.insertRow();
  const head = make("th", "", name);
  head.scope = "row";
  row.append(head);
  row.insertCell().append(middle);
  row.insertCell().textContent = time;
}
