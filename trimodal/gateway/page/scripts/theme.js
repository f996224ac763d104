// Applies the chosen theme before the page is drawn: a module would come too late, and the page would flash.
"use strict";

(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("trimodal.theme");
  } catch {
    // SecurityError: the user blocks all sites' data
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
