// Shows a model's text: headings, lists, tables, quotes, code, **bold** and *italic*. Nodes are made one by one
// and text stays text, so that nothing a model says can become markup.

import { copyButton, make } from "../figures.js";

const FENCE = /^\s*(`{3,})[^`]*$/;
const HEADING = /^#{1,6}\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d+)[.)])\s+(.*)$/;
const QUOTE = /^\s*>\s?(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const UNDER_HEAD = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;
const DEEPEST = 8; // quotes within quotes
const INLINE = /(```[^`\n]+```|`[^`\n]+`|\*\*(?=\S)[^\n]*?\S\*\*|\*(?=[^\s*])[^*\n]*?[^\s*]\*(?![\w*]))/;

export function showText(element, text) {
  element.replaceChildren(...blocks(text.split("\n")));
}

function blocks(lines, depth = 0) {
  const nodes = [];
  let at = 0;
  // Takes the lines that match, from here on, and what is read of each.
  const takeWhile = (pattern) => {
    const taken = [];
    for (; at < lines.length && pattern.test(lines[at]); at += 1) taken.push(pattern.exec(lines[at]));
    return taken;
  };
  const isTable = () => ROW.test(lines[at]) && UNDER_HEAD.test(lines[at + 1] ?? "");
  const isText = () => lines[at].trim() && !isTable() && ![FENCE, HEADING, ITEM, QUOTE, RULE].some((one) => one.test(lines[at]));
  while (at < lines.length) {
    const line = lines[at];
    if (FENCE.test(line)) {
      const from = (at += 1); // the last fence may be open while the text still comes
      const [, ticks] = FENCE.exec(line);
      const closes = (one) => one.trim().length >= ticks.length && /^`+$/.test(one.trim());
      while (at < lines.length && !closes(lines[at])) at += 1;
      nodes.push(codeBlock(lines.slice(from, at).join("\n")));
      at += 1;
    } else if (isTable()) {
      nodes.push(table(takeWhile(ROW).map(([row]) => row)));
    } else if (HEADING.test(line)) {
      nodes.push(withInline(make("h4"), HEADING.exec(line)[1]));
      at += 1;
    } else if (RULE.test(line)) {
      nodes.push(make("hr"));
      at += 1;
    } else if (ITEM.test(line)) {
      nodes.push(list(takeWhile(ITEM)));
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      const quote = make("blockquote");
      quote.append(...blocks(takeWhile(QUOTE).map(([, said]) => said), depth + 1));
      nodes.push(quote);
    } else if (!line.trim()) {
      at += 1;
    } else {
      const from = at;
      do at += 1;
      while (at < lines.length && isText());
      nodes.push(withInline(make("p"), lines.slice(from, at).join("\n").trim()));
    }
  }
  return nodes;
}

// Items that are set in further than the first of a list are a list within the item before them.
function list(items) {
  const [[, { length: depth }, number]] = items;
  const element = make(number ? "ol" : "ul");
  if (number) element.start = Number(number);
  for (let at = 0; at < items.length; ) {
    const item = withInline(make("li"), items[at][3]);
    const from = (at += 1);
    while (at < items.length && items[at][1].length > depth) at += 1;
    if (at > from) item.append(list(items.slice(from, at)));
    element.append(item);
  }
  return element;
}

function table(rows) {
  const cells = (row) => row.trim().slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const line = (row, kind) => {
    const element = make("tr");
    element.append(...cells(row).map((cell) => withInline(make(kind), cell)));
    return element;
  };
  const [head, body, frame] = [make("thead"), make("tbody"), make("div", "table")];
  frame.tabIndex = 0; // it may scroll sideways
  head.append(line(rows[0], "th"));
  body.append(...rows.slice(2).map((row) => line(row, "td")));
  const element = make("table");
  element.append(head, body);
  frame.append(element);
  return frame;
}

function codeBlock(text) {
  const frame = make("div", "block");
  const block = make("pre");
  block.tabIndex = 0;
  block.append(make("code", "", text));
  frame.append(block, ...copyButton(() => text));
  return frame;
}

function withInline(element, text) {
  text.split(INLINE).forEach((piece, index) => {
    if (index % 2 === 0) element.append(piece);
    else if (piece.startsWith("`")) element.append(make("code", "", piece.replace(/^`+|`+$/g, "")));
    else if (piece.startsWith("**")) element.append(withInline(make("strong"), piece.slice(2, -2)));
    else element.append(withInline(make("em"), piece.slice(1, -1)));
  });
  return element;
}
