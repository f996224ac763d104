// Shows a model's text: headings, lists, tables, quotes, code, **bold** and *italic*. Nodes are made one by one
// and text stays text, so that nothing a model says can become markup.

import { copyButton, make } from "../figures.js";

const FENCE = /^(\s*)(`{3,}(?=[^`]*$)|~{3,})/;
const HEADING = /^#{1,6}\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d+)[.)])\s+(.*)$/;
const QUOTE = /^\s*>\s?(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const UNDER_HEAD = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;
const DEEPEST = 8; // quotes and lists within each other
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
      const { length: columns } = FENCE.exec(line)[1];
      const end = fenceEnd(lines, at);
      nodes.push(codeBlock(lines.slice(at + 1, end).map((one) => outdent(one, columns)).join("\n")));
      at = end + 1;
    } else if (isTable()) {
      nodes.push(table(takeWhile(ROW).map(([row]) => row)));
    } else if (HEADING.test(line)) {
      nodes.push(withInline(make("h4"), HEADING.exec(line)[1]));
      at += 1;
    } else if (RULE.test(line)) {
      nodes.push(make("hr"));
      at += 1;
    } else if (depth < DEEPEST && ITEM.test(line)) {
      const end = listEnd(lines, at);
      nodes.push(list(lines.slice(at, end), depth));
      at = end;
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

// Of the fence at `from`, where it ends; the last one may be open while the text still comes.
function fenceEnd(lines, from, line = lines[from]) {
  const [, , marks] = FENCE.exec(line);
  const closes = (one) => one.trim().startsWith(marks) && !one.trim().replaceAll(marks[0], "");
  let at = from + 1;
  while (at < lines.length && !closes(lines[at])) at += 1;
  return at;
}

// Without so many columns of white space at its beginning; a tab goes to the next fourth.
function outdent(line, columns) {
  let at = 0;
  for (let column = 0; column < columns && /\s/.test(line[at] ?? ""); at += 1) {
    column += line[at] === "\t" ? 4 - (column % 4) : 1;
  }
  return line.slice(at);
}

const isItem = (line, ordered) => !RULE.test(line) && ITEM.test(line) && Boolean(ITEM.exec(line)[2]) === ordered;

// Where the item at `from` ends: what is set in further than its mark belongs to it, with empty lines between.
function itemEnd(lines, from) {
  const [, { length: depth }, , first] = ITEM.exec(lines[from]);
  let end = FENCE.test(first) ? fenceEnd(lines, from, first) + 1 : from + 1;
  for (let at = end; at < lines.length; ) {
    if (lines[at].trim() && lines[at].search(/\S/) <= depth) break;
    const fenced = FENCE.test(lines[at]);
    at = fenced ? fenceEnd(lines, at) + 1 : at + 1;
    if (fenced || lines[at - 1].trim()) end = at;
  }
  return Math.min(end, lines.length);
}

function listEnd(lines, from) {
  const ordered = isItem(lines[from], true);
  let end = from;
  for (let at = from; at < lines.length && isItem(lines[at], ordered); ) {
    at = end = itemEnd(lines, at);
    while (at < lines.length && !lines[at].trim()) at += 1; // empty lines between items
  }
  return end;
}

function list(lines, depth) {
  const [, , number] = ITEM.exec(lines[0]);
  const element = make(number ? "ol" : "ul");
  if (number) element.start = Number(number);
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [line, , , first] = ITEM.exec(lines[at]);
    const end = itemEnd(lines, at);
    const others = lines.slice(at + 1, end).map((one) => outdent(one, line.length - first.length));
    const [head, ...rest] = blocks([first, ...others], depth + 1);
    const item = make("li");
    if (head) item.append(...(head.localName === "p" ? head.childNodes : [head]), ...rest);
    element.append(item);
    at = end;
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
