// Shows a model's text: paragraphs, `code` and fenced blocks. Nodes are made one by one and text stays text,
// so that nothing a model says can become markup.

export function showText(element, text) {
  const nodes = [];
  // Odd parts are the insides of fences; the last fence may be open while the text still comes.
  text.split(/^```[^\n]*\n?/m).forEach((part, index) => {
    if (index % 2) nodes.push(codeBlock(part));
    else nodes.push(...paragraphs(part));
  });
  element.replaceChildren(...nodes);
}

function codeBlock(text) {
  const block = document.createElement("pre");
  block.tabIndex = 0; // it may scroll sideways
  const code = document.createElement("code");
  code.textContent = text.replace(/\n$/, "");
  block.append(code);
  return block;
}

function paragraphs(text) {
  return text
    .split(/\n{2,}/)
    .filter((part) => part.trim())
    .map((part) => {
      const paragraph = document.createElement("p");
      part
        .trim()
        .split(/(`[^`\n]+`)/)
        .forEach((piece, index) => paragraph.append(index % 2 ? inlineCode(piece.slice(1, -1)) : piece));
      return paragraph;
    });
}

function inlineCode(text) {
  const code = document.createElement("code");
  code.textContent = text;
  return code;
}
