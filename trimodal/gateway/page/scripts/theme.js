// Applies the chosen theme before the page is drawn: a module would come too late, and the page would flash.
"use strict";

(() => {
  const chosen = localStorage.getItem("trimodal.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
