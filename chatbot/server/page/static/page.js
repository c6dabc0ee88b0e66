// Sending without waiting, drafts, shortcuts, copying, and the scroll position after a part of the page was replaced.
// Without a script the page still works: links, forms and menus are plain HTML.
"use strict";
(() => {
  const root = document.documentElement;
  const at = (id) => document.getElementById(id);
  const announce = (text) => {
    if (text) at("sidebar")?.hidePopover();  // the drawer of a narrow screen would cover it
    at("announcement").textContent = text;
  };
  const state = (text) => { const place = at("state"); if (place) place.textContent = text; };
  const isAtEnd = () => window.innerHeight + window.scrollY >= document.body.scrollHeight - 120;
  const toEnd = () => window.scrollTo(0, document.body.scrollHeight);
  // Enter and Escape of an input method; Safari sends them after the end of the composition, with this code.
  const isComposing = (event) => event.isComposing || event.keyCode === 229;
  const hasKeys = () => matchMedia("(hover: hover)").matches;
  const tabs = new BroadcastChannel("chatbot");
  let follows = true;

  function toggleTheme() {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  }

  // Scroll to the element that the address names, or to the end of a conversation. Returns false without either.
  function arrive() {
    showSessions();
    for (const each of document.querySelectorAll("time[datetime]")) each.title = new Date(each.dateTime).toLocaleString();
    follows = true;
    restoreDraft();
    at("single-keys").checked = localStorage.getItem("single-keys") !== "off";
    const here = location.hash ? at(location.hash.slice(1)) : null;
    if (here?.matches("details")) { here.open = true; here.querySelector("input, textarea")?.focus(); }
    history.scrollRestoration = here || at("log") ? "manual" : "auto";
    if (here) here.scrollIntoView();
    else if (at("log")?.dataset.session && !at("edit")) toEnd();
    else return false;
    return true;
  }

  // The way back, and a reload, lead to where the conversation was left, unless that was its end.
  function whereLeft() {
    const log = at("log");
    if (!log?.dataset.session || !location.pathname.endsWith(log.dataset.session) || at("edit") || isAtEnd()) return "";
    const first = [...log.querySelectorAll(":scope > [data-at]")].find((each) => each.getBoundingClientRect().bottom > window.innerHeight / 4);
    return first ? `${location.pathname}?at=${encodeURIComponent(first.dataset.at)}#here` : "";
  }
  document.addEventListener("htmx:beforeHistorySave", () => {
    const left = whereLeft();
    if (left) history.replaceState(history.state, "", left);
  });
  window.addEventListener("pagehide", () => sessionStorage.setItem("left", whereLeft()));
  function arriveAgain() {
    const left = sessionStorage.getItem("left");
    if (left?.startsWith(`${location.pathname}?`) && performance.getEntriesByType("navigation")[0]?.type === "reload") location.replace(left);
  }

  // The list in the sidebar keeps its place when it is replaced, and shows the session that is open.
  let listed = 0;
  document.addEventListener("scroll", ({ target }) => { if (target.id === "recent") listed = target.scrollTop; }, true);
  document.addEventListener("htmx:oobAfterSwap", ({ detail }) => { if (detail.target.id === "recent") at("recent").scrollTop = listed; });
  function showSessions() {
    if (!at("recent")) return;
    at("recent").scrollTop = listed;
    at("recent").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  // The token expired or was revoked: log in, and come back to this page, where what was typed is a draft.
  const logIn = () => location.assign(`/login?to=${encodeURIComponent(location.pathname + location.search)}`);

  function problemIn(text, isPage) {
    if (isPage) return new DOMParser().parseFromString(text, "text/html").querySelector(".problem")?.textContent;
    try {
      const { message } = JSON.parse(text).error;
      return `${message[0].toUpperCase()}${message.slice(1)}`;
    } catch { return null; }
  }

  // Drafts: text that was not sent, or could not be, is restored with the page.
  const draftName = () => `draft:${location.pathname.replace(/\/$/, "")}`;
  const resize = (box) => {  // for browsers that lack this property, which style.css uses
    if (!box || CSS.supports("field-sizing", "content")) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight}px`;
  };
  const draftOf = (texts) => texts.filter(Boolean).join("\n\n");
  function restoreDraft() {
    const box = at("text");
    const draft = localStorage.getItem(draftName()) ?? "";
    const last = [...document.querySelectorAll("#log .question")].pop()?.textContent;
    if (draft === last) localStorage.removeItem(draftName());  // it arrived after the page was left
    else if (box && !box.value) box.value = draft;
    resize(box);
  }
  function keepDraft() {
    resize(at("text"));
    const unsent = [...document.querySelectorAll("#log > [data-text]")].map((each) => each.dataset.text);
    const text = draftOf([...unsent, at("text")?.value]);
    try {
      if (text) localStorage.setItem(draftName(), text); else localStorage.removeItem(draftName());
    } catch { /* too long for the browser: it stays in the box */ }
  }
  const addToDraft = ({ draft, text }) => { if (text) localStorage.setItem(draft, draftOf([localStorage.getItem(draft), text])); };

  // The page may load pictures of this server only: so one that is not sent yet is drawn.
  async function drawn(file) {
    const image = file.type.startsWith("image/") && await createImageBitmap(file, { resizeHeight: 96 }).catch(() => null);
    if (!image) return "";
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas;
  }

  // Files are sent as data: URLs in hidden fields of the form, which are named after them.
  async function attach(files) {
    for (const file of files) {
      const held = [...at("attached")?.children ?? []].reduce((sum, each) => sum + Number(each.dataset.size), file.size);
      const most = Number(at("attached")?.dataset.most);
      if (!file.size) { announce(`${file.name} is not attached: it is empty.`); continue; }
      if (held > most) { announce(`${file.name} is not attached: a message holds ${Math.floor(most / 2 ** 20)} MB of files.`); continue; }
      const url = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.addEventListener("load", () => resolve(reader.result));
        reader.addEventListener("error", () => resolve(""));
        reader.readAsDataURL(file);
      });
      const picture = await drawn(file);
      const list = at("attached");
      if (!list) return;
      if (!url) { announce(`${file.name} cannot be read.`); continue; }
      const item = document.createElement("li");
      const name = document.createElement("span");
      const field = document.createElement("input");
      const remove = document.createElement("button");
      name.textContent = file.name;
      item.dataset.size = file.size;
      field.type = "hidden";
      field.name = `file:${list.childElementCount}:${file.name}`;
      field.value = url;
      remove.type = "button";
      remove.textContent = "✕";
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => { item.remove(); at("text").focus(); });
      item.append(picture, name, field, remove);
      list.append(item);
    }
    at("text")?.focus();
  }
  const hasFiles = () => Boolean(at("attached")?.childElementCount);

  document.addEventListener("change", (event) => {
    if (event.target.id === "files") { attach([...event.target.files]); event.target.value = ""; }
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length && at("attached")) { event.preventDefault(); attach(files); }
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      if (!at("composer") || !event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      at("composer").classList.toggle("dropping", kind === "dragover");
      if (kind === "drop") attach([...event.dataTransfer.files]);
    });
  }

  // Messages are shown at once and sent in order. One that could not be sent stays, with a button that sends it again:
  // its key lets the server recognise a message that did arrive.
  const outbox = [];
  let isSending = false;

  function pendingOf(text) {
    const article = document.createElement("article");
    const question = document.createElement("div");
    const note = document.createElement("p");
    article.className = "exchange pending";
    question.className = "question";
    question.dir = "auto";
    question.lang = "";
    question.textContent = text;
    note.className = "sending small";
    note.textContent = "Sending…";
    article.append(question, note);
    at("log").append(article);
    toEnd();
    return article;
  }

  // Put the text of a message that the session does not have into the box again.
  function takeBack(button) {
    const box = at("text");
    box.value = draftOf([button.dataset.text, box.value]);
    button.closest("article").remove();
    keepDraft();
    box.focus();
  }

  function newKey() {
    return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  function send(form) {
    const box = at("text");
    const shown = [box.value, ...[...at("attached").querySelectorAll("span")].map((each) => each.textContent)].filter(Boolean).join("\n");
    outbox.push({
      form, body: new URLSearchParams(new FormData(form)), key: newKey(), shown, article: pendingOf(shown),
      text: box.value, draft: draftName(), session: at("log").dataset.session,
    });
    box.value = "";
    at("choices").open = false;
    at("choices").dataset.changed = "";
    at("attached").replaceChildren();
    keepDraft();
    sendNext();
  }

  async function sendNext() {
    if (isSending || !outbox.length) return;
    isSending = true;
    const item = outbox[0];
    let html = "";
    let problem = null;
    let status = 0;
    try {
      const headers = { "HX-Request": "true", "Idempotency-Key": item.key };
      const answer = await fetch(item.form.action, { method: "POST", body: item.body, headers });
      html = await answer.text();
      status = answer.status;
      if (!answer.ok) throw new Error(problemIn(html, (answer.headers.get("content-type") ?? "").startsWith("text/html")) ?? `The server answered ${answer.status}.`);
    } catch (error) { problem = error; }
    outbox.shift();
    isSending = false;
    try {
      if (problem) failed(item, problem);
      if (status === 401) logIn();
      else if (!problem && item.article.isConnected) await sent(item, html);  // else the user has left the page
      if (!problem) tabs.postMessage(item.session);
    } finally { sendNext(); }
  }

  function addToLog(html) {
    htmx.swap("#log", html, { swapStyle: "beforeend", swapDelay: 0, settleDelay: 0 });
    at("log").append(...document.querySelectorAll("#log > .failed"));  // what was not sent comes last
  }

  async function sent(item, html) {
    item.article.remove();
    if (html) addToLog(html);
    else await catchUp();  // an earlier try had arrived
    if (at("live")) state(`${document.querySelector(".where")?.textContent ?? ""} is answering`);
    else sayEnding();
    toEnd();
  }

  function failed(item, error) {
    const note = item.article.querySelector(".sending");
    const again = document.createElement("button");
    const reason = error instanceof TypeError ? "The server cannot be reached." : error.message;
    if (!item.article.isConnected) {
      addToDraft(item);
      return announce(`A message was not sent, and is a draft in its session. ${reason}`);
    }
    item.article.classList.add("failed");
    item.article.dataset.text = item.text;
    keepDraft();
    again.type = "button";
    again.textContent = "Send again";
    again.addEventListener("click", () => {
      item.article.remove();
      item.article = pendingOf(item.shown);
      keepDraft();
      outbox.push(item);
      sendNext();
      if (hasKeys()) at("text").focus();
    });
    note.replaceChildren(`Not sent. ${reason} `, again);
    state(`The message was not sent. ${reason}`);
  }

  // New messages from another tab, another device or the terminal. A visible page asks for them every few seconds, less
  // often while the server does not answer; another tab of this browser reports them at once.
  const ASK_EVERY_MS = 3_000;
  const LONGEST_PAUSE_MS = 60_000;
  let isCatchingUp = false;
  let lastNews = "";
  let pause = ASK_EVERY_MS;
  async function catchUp() {
    if (isCatchingUp) return;
    isCatchingUp = true;
    try { pause = await addWhatIsNew() ? ASK_EVERY_MS : Math.min(2 * pause, LONGEST_PAUSE_MS); } finally { isCatchingUp = false; }
  }
  async function keepAsking() {
    if (!document.hidden) await catchUp();
    setTimeout(keepAsking, pause);
  }

  // Show choices made in another tab, unless the user is making some here.
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target } = event.detail;
    if (target.id === "choices" && (target.open || target.dataset.changed)) event.detail.shouldSwap = false;
  });

  // Returns false if the server does not answer, or refuses.
  async function addWhatIsNew() {
    const log = at("log");
    if (!log?.dataset.session || at("live") || isSending || document.querySelector(".pending:not(.failed), #edit")) return true;
    if (log.querySelector(":scope > article:last-of-type ~ .earlier")) return true;
    const last = [...log.querySelectorAll("[data-at]")].pop()?.dataset ?? { at: "", written: "" };
    const place = at("composer").action.replace(/\/say$/, "");
    const answer = await fetch(`${place}/since?${new URLSearchParams({ after: last.at, written: last.written })}`, { headers: { "HX-Request": "true" } }).catch(() => null);
    const html = answer ? await answer.text() : "";
    if (log !== at("log") || at("live") || isSending) return true;
    if (answer?.status === 404) {  // deleted meanwhile: nothing more to ask for
      delete log.dataset.session;
      announce(problemIn(html, true) ?? "This session is deleted.");
    }
    if (answer?.status === 401) logIn();
    if (!answer?.ok) return false;
    if (answer.status === 205 && !hasFiles() && !at("choices").dataset.changed) htmx.ajax("GET", location.pathname, { target: "body", swap: "innerHTML", headers: { "HX-Boosted": "true" } });
    if (html && html === lastNews) return true;
    lastNews = html;
    for (const each of log.querySelectorAll(".waiting, [data-open]")) if (html || each.matches(".waiting")) each.remove();
    if (!html) return true;
    const wasAtEnd = isAtEnd();
    addToLog(html);
    state("There are new messages.");
    if (wasAtEnd) toEnd();
    return true;
  }
  tabs.addEventListener("message", (event) => { if (event.data === at("log")?.dataset.session) catchUp(); });
  const READY = "● ";  // a reply that came while the user looked elsewhere
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    document.title = document.title.replace(READY, "");
    catchUp();
  });
  window.addEventListener("online", catchUp);

  async function copy(button, text) {
    try { await navigator.clipboard.writeText(text); } catch { return announce("The browser does not allow copying here."); }
    const label = button.querySelector(".unseen") ?? button;
    const before = label.textContent;
    label.textContent = "Copied";
    button.classList.add("copied");
    announce("Copied.");
    setTimeout(() => { label.textContent = before; button.classList.remove("copied"); announce(""); }, 1500);
  }

  // Turn the title of a session into a text box; Enter saves it, Escape discards it.
  function rename(element) {
    const box = document.createElement("input");
    const title = element.textContent.trim();
    let hasEnded = false;
    const end = (keeps) => {
      if (hasEnded) return;
      hasEnded = true;  // removing the box blurs it, too
      box.replaceWith(element);
      element.focus();
      if (keeps && box.value.trim() !== title) giveTitle(element.dataset.rename, box.value.trim());
    };
    box.className = "renaming";
    box.value = title;
    box.maxLength = 200;
    box.setAttribute("aria-label", "Title");
    box.addEventListener("keydown", (event) => {
      if (!isComposing(event) && ["Enter", "Escape"].includes(event.key)) { event.preventDefault(); event.stopPropagation(); end(event.key === "Enter"); }
    });
    box.addEventListener("blur", () => end(false));
    element.replaceWith(box);
    box.select();
  }

  async function giveTitle(session, title) {
    const address = `${document.querySelector(".places a").getAttribute("href")}/c/${session}/rename`;
    const headers = { "HX-Request": "true" };
    const answer = await fetch(address, { method: "POST", body: new URLSearchParams({ title }), headers }).catch(() => null);
    if (answer?.status === 401) return logIn();
    if (!answer?.ok) return announce(answer ? problemIn(await answer.text(), true) ?? "Not renamed." : "Not renamed. The server cannot be reached.");
    for (const each of document.querySelectorAll(`[data-rename="${session}"]`)) each.querySelector("bdi").textContent = title || "Untitled";
    for (const each of document.querySelectorAll(`form[action$="${session}/rename"] [name=title]`)) each.value = each.defaultValue = title;
    if (at("heading")?.dataset.rename === session) {
      document.title = `${title || "Untitled"} · ${document.querySelector(".where").textContent}`;
    }
    state("Renamed.");
  }

  document.addEventListener("dblclick", (event) => {
    const element = event.target.closest("#heading[data-rename]");
    if (element) rename(element);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, a");
    if (event.target.id === "announcement") announce("");
    else if (button?.id === "theme") toggleTheme();
    else if (button?.id === "to-end") toEnd();
    else if (button?.matches(".copy")) copy(button, button.closest(".code").querySelector("pre").textContent);
    else if (button?.matches(".copy-reply")) copy(button, button.dataset.text);
    else if (button?.matches(".take-back")) takeBack(button);
    else if (button?.matches(".link-to") && navigator.clipboard) { event.preventDefault(); event.stopPropagation(); copy(button, button.href); }
    closeMenus(event);
  }, true);
  document.addEventListener("focusin", closeMenus);
  function closeMenus(event) {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  }

  document.addEventListener("submit", (event) => {
    if (event.target.id !== "composer") return;
    const isEmpty = !at("text").value.trim() && !hasFiles();
    const isInSession = event.target.hasAttribute("hx-post");
    if (isEmpty || isInSession || document.querySelector(".pending")) {  // the last one is on its way
      event.preventDefault();
      event.stopImmediatePropagation();
      if (isInSession && !isEmpty) send(event.target);
    } else {
      pendingOf(at("text").value).dataset.text = at("text").value;
      setTimeout(() => { at("text").value = ""; });  // once the form is read
    }
  }, true);

  // Shortcuts of a single character: a person who dictates types them by chance, and can turn them off.
  const SHORTCUTS = {
    "?": () => at("shortcuts")?.togglePopover(),
    "/": () => at("text")?.focus(),
    n: () => document.querySelector(".places a")?.click(),
    s: () => search("sessions"),
    m: () => search("memory"),
  };
  let isSearching = false;
  function search(place) {
    const link = document.querySelector(`.places a[href$='/${place}']`);
    isSearching = Boolean(link);
    link?.click();
  }

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && !isComposing(event)) {
      const menu = event.target.closest?.("details[open]");
      for (const form of menu?.querySelectorAll("form") ?? []) form.reset();
      if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
      else if (at("announcement").textContent) announce("");
      else if (event.target.closest?.("#edit")) document.querySelector("#edit a").click();
      else if (at("live") && !document.querySelector(":popover-open")) at("stop")?.click();
    } else if (event.key === "F2" && event.target.dataset?.rename) {
      event.preventDefault();
      rename(event.target);
    } else if (event.key === "ArrowUp" && event.target.id === "text" && !event.target.value) {
      const edit = [...document.querySelectorAll(".actions a[href*='?edit=']")].pop();
      if (edit) { event.preventDefault(); edit.click(); }
    } else if (event.key === "Enter" && !event.shiftKey && !isComposing(event) && event.target.matches("textarea[data-enter]") && hasKeys()) {
      event.preventDefault();
      event.target.form.requestSubmit();
    } else if (!isTyping && !event.ctrlKey && !event.metaKey && !event.altKey && SHORTCUTS[event.key] && at("single-keys").checked) {
      event.preventDefault();
      SHORTCUTS[event.key]();
    }
  });

  document.addEventListener("input", (event) => {
    if (event.target.id === "text") keepDraft();
    const choices = event.target.closest("#choices");
    if (choices) choices.dataset.changed = "yes";
    if (event.target.id === "single-keys") localStorage.setItem("single-keys", event.target.checked ? "on" : "off");
    if (event.target.matches("input[data-all]")) {
      for (const box of document.querySelectorAll("input[name^='id:']")) box.checked = event.target.checked;
    }
  });

  // Scrolling up loads earlier messages shortly before they come into view, and the view keeps its place.
  let before = 0;
  document.addEventListener("scroll", () => {
    const isGoingBack = window.scrollY < before;
    before = window.scrollY;
    at("to-end")?.toggleAttribute("hidden", isAtEnd());
    const link = document.querySelector("#log > .earlier:first-child a");
    if (isGoingBack && before < 300 && link && !link.classList.contains("htmx-request")) link.click();
  }, { passive: true });

  let anchor = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const element = event.detail.target;
    if (!element.matches?.("#log > .earlier")) return;
    const next = element.nextElementSibling;
    anchor = next && { next, top: next.getBoundingClientRect().top };
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.matches?.(".noted-rows")) event.target.closest("details").scrollIntoView({ block: "nearest" });
    if (anchor) window.scrollBy(0, anchor.next.getBoundingClientRect().top - anchor.top);
    anchor = null;
  });

  // Forms that ask for a reply, which may be complete before the next page is shown.
  const ASKS = /\/(say|edit|retry)$/;

  // What is typed while a session begins is kept for its page.
  let typed = "";
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    const begins = detail.target === document.body && ASKS.test(detail.requestConfig?.path) && !at("log")?.dataset.session;
    typed = begins && detail.xhr.status < 400 ? at("text")?.value ?? "" : "";
  });

  // After a change of page, move the focus to its beginning, for keyboards and screen readers.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target !== document.body) return;
    const { path, elt } = event.detail.requestConfig ?? {};
    if (elt?.id === "composer" || typed) localStorage.removeItem(`draft:${path.replace(ASKS, "")}`);
    if (!arrive()) window.scrollTo(0, 0);
    if (typed) { at("text").value = typed; typed = ""; keepDraft(); }
    if (ASKS.test(path) && !at("live")) sayEnding();
    focusStart();
    isSearching = false;
  });
  // On a touch screen the focus would open the keyboard, which covers half of a conversation.
  function focusStart() {
    at("main").ariaLabel = document.title;  // which screen readers say when the focus comes there
    if (document.activeElement !== document.body) return;
    const start = isSearching ? "#q" : hasKeys() ? "#edited, .chat #text" : "#edited";
    (document.querySelector(start) ?? at("main"))?.focus({ preventScroll: true });
  }

  // When a part of a page is replaced, the control that had the focus there passes it on to the one in its place: the same
  // one, one of its kind, or the new part itself. Otherwise keyboards and screen readers would begin at the top again.
  let focused = null;
  document.addEventListener("focusin", ({ target }) => { focused = target; });
  document.addEventListener("focusout", ({ target }) => queueMicrotask(() => { if (focused === target && target.isConnected) focused = null; }));
  new MutationObserver((records) => {
    if (!focused || focused.isConnected || document.activeElement !== document.body) return;
    const place = records.find((each) => [...each.removedNodes].some((node) => node.contains(focused)))?.target;
    if (!place?.isConnected || place === document.body) return;
    const added = records.flatMap((each) => each.target === place ? [...each.addedNodes] : []).filter((node) => node.isConnected && node.nodeType === Node.ELEMENT_NODE);
    const controls = added.flatMap((each) => [...each.querySelectorAll(focused.tagName)]).filter((each) => each.checkVisibility());
    const next = controls.find((each) => each.textContent === focused.textContent) ?? controls[0] ?? added[0] ?? place;
    if (next.tabIndex < 0) next.tabIndex = -1;
    next.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true });

  document.addEventListener("htmx:sseOpen", (event) => {
    announce("");
    for (const each of event.target.querySelectorAll(".complete, .growing")) each.replaceChildren();
  });
  document.addEventListener("htmx:sseError", async ({ detail }) => {
    announce("The connection was lost. Trying again…");
    if (detail.source.readyState !== EventSource.CLOSED) return;
    const answer = await fetch(location.href, { method: "HEAD" }).catch(() => null);
    if (answer?.status === 401) logIn();
  });
  document.addEventListener("htmx:sseBeforeMessage", () => { follows = isAtEnd(); });
  document.addEventListener("htmx:sseMessage", () => { if (follows) toEnd(); });
  // Announce how the last reply ended: complete, stopped, cut or failed, and why.
  function sayEnding() {
    const last = [...document.querySelectorAll("#log > article:not([data-turn])")].pop();
    const ending = last?.querySelector("[data-ending]")?.dataset.ending ?? "The reply is complete.";
    state(`${ending} ${last?.querySelector(".problem")?.textContent ?? ""}`.trim());
  }
  document.addEventListener("htmx:sseClose", () => {
    setTimeout(() => { if (document.hidden && !document.title.startsWith(READY)) document.title = READY + document.title; });
    if (document.activeElement?.id === "stop") at("text")?.focus();
    tabs.postMessage(at("log")?.dataset.session);
    requestAnimationFrame(() => {
      for (const each of document.querySelectorAll(".waiting")) if (each.dataset.turn === at("live")?.dataset.turn) each.remove();
      sayEnding();
      if (follows) toEnd();
      if (!at("live")) catchUp();
    });
  });

  // A failed link leads to a page with the reason. A failed form keeps its text, and the reason is announced.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target, requestConfig } = event.detail;
    const isPage = (xhr.getResponseHeader("content-type") ?? "").startsWith("text/html");
    if (xhr.status === 401) { event.detail.shouldSwap = false; return logIn(); }
    if (xhr.status < 400 || (isPage && target === document.body && requestConfig.verb === "get")) return;
    event.detail.shouldSwap = false;
    notDone(event, problemIn(xhr.responseText, isPage) ?? `The server answered ${xhr.status}.`);
  });
  // These are said on the page: the console is for mistakes of the page itself.
  htmx.logger = (_, name, detail) => { if (/^htmx:(afterRequest|sendError|sendAbort|sseError|timeout)$/.test(name)) delete detail.error; };
  document.addEventListener("htmx:sendError", (event) => notDone(event, "The server cannot be reached. Check that it is running."));
  // The first message of a session has a key, too: the same one until the server answers or the message is changed.
  let first = {};
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id !== "composer" || at("log").dataset.session) return;
    const body = new URLSearchParams(event.detail.formData).toString();
    if (first.body !== body) first = { body, key: newKey() };
    event.detail.headers["Idempotency-Key"] = first.key;
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => { if (detail.xhr.status && detail.requestConfig.elt.id === "composer") first = {}; });
  function notDone(event, why) {
    announce(why);
    const pending = event.detail.requestConfig?.elt?.id === "composer" && document.querySelector(".pending:not(.failed)");
    if (!pending) return;
    pending.remove();
    at("text").value = draftOf([pending.dataset.text, at("text").value]);
    keepDraft();
  }
  document.addEventListener("htmx:beforeRequest", () => announce(""));

  window.addEventListener("pagehide", () => outbox.forEach(addToDraft));
  // The next person at this browser must not find the drafts of the one who logs out.
  document.addEventListener("submit", ({ target }) => {
    if (target.getAttribute("action") !== "/logout") return;
    outbox.length = 0;
    for (const name of Object.keys(localStorage)) if (name.startsWith("draft:")) localStorage.removeItem(name);
  });
  arrive();
  arriveAgain();
  if (at("text") && hasKeys()) focusStart();
  setTimeout(keepAsking, pause);
})();
