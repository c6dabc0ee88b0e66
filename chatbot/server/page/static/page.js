// What a page without a script cannot do: Enter that sends, the switch between light and dark, where the view stands
// and where the keys go after a part of the page was exchanged. Everything else works without it.
"use strict";
(() => {
  const root = document.documentElement;
  const told = (text) => { const place = document.getElementById("told"); if (place) place.textContent = text; };
  const state = (text) => { const place = document.getElementById("state"); if (place) place.textContent = text; };
  const isAtEnd = () => window.innerHeight + window.scrollY >= document.body.scrollHeight - 120;
  const toEnd = () => window.scrollTo(0, document.body.scrollHeight);
  let follows = true;

  function toggleTheme() {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  }

  // Whether the view was put where the page wants it: at what its address names, or at the end of a conversation.
  function arrive() {
    document.getElementById("theme")?.removeAttribute("hidden");
    for (const each of document.querySelectorAll("time[datetime]")) {
      each.title = new Date(each.dateTime).toLocaleString();
    }
    follows = true;
    const here = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (here) here.scrollIntoView();
    else if (document.querySelector(".page.chat") && !document.getElementById("edit")) toEnd();
    else return false;
    return true;
  }

  function problemIn(text, isPage) {
    if (isPage) return new DOMParser().parseFromString(text, "text/html").querySelector(".problem")?.textContent;
    try { return JSON.parse(text).error.message; } catch { return null; }
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest("#theme")) toggleTheme();
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      const menu = event.target.closest?.("details.menu[open]");
      if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
      else document.getElementById("stop")?.click();
      return;
    }
    const isSending = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (isSending && event.target.matches("textarea[data-enter]") && matchMedia("(hover: hover)").matches) {
      event.preventDefault();
      if (event.target.id === "text" && document.getElementById("live")) return;
      event.target.form.requestSubmit();
    }
  });

  // A page was exchanged for another: whoever reads with the keys or by ear is put at its beginning.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target !== document.body) return;
    if (!arrive()) window.scrollTo(0, 0);
    if (document.activeElement === document.body) {
      (document.querySelector("#edited, .chat #text") ?? document.getElementById("main"))?.focus({ preventScroll: true });
    }
  });

  document.addEventListener("htmx:sseOpen", (event) => {
    for (const each of event.target.querySelectorAll(".complete, .growing")) each.replaceChildren();
  });
  document.addEventListener("htmx:sseBeforeMessage", () => { follows = isAtEnd(); });
  document.addEventListener("htmx:sseMessage", () => { if (follows) toEnd(); });
  document.addEventListener("htmx:sseClose", () => {
    const stop = document.getElementById("stop");
    if (stop && document.activeElement === stop) document.getElementById("text")?.focus();
    stop?.remove();
    state("The reply is complete.");
    requestAnimationFrame(() => { if (follows) toEnd(); });
  });

  // What goes wrong is a page of its own; where only a part is exchanged, and where it is no page, it is just told.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target } = event.detail;
    const isPage = (xhr.getResponseHeader("content-type") ?? "").startsWith("text/html");
    if (isPage && (xhr.status < 400 || target === document.body)) return;
    event.detail.shouldSwap = false;
    told(problemIn(xhr.responseText, isPage) ?? `The server answered ${xhr.status}.`);
  });
  document.addEventListener("htmx:sendError", () => told("The server cannot be reached. Check that it is running."));
  document.addEventListener("htmx:beforeRequest", () => told(""));

  arrive();
})();
