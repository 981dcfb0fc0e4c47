// SPDX-License-Identifier: Apache-2.0
// The page works without this. It fetches the page again when the server says that something has changed, and puts what is new in
// place of what is old: elements with data-swap, which keep open details, the focus and the place of scrolling. An element in which
// somebody types is left alone.
"use strict";
(() => {
  const address = document.body.dataset.live;
  const state = document.getElementById("live");
  if (!address || !window.EventSource) return;
  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };
  let busy = false, again = false, pending = 0;

  const typing = (element) => {
    const at = document.activeElement;
    return element.contains(at) && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
  };
  const keyOf = (element) => element && (element.id ? "#" + CSS.escape(element.id) : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null);

  // A form that makes something new keeps its nonce until the page is loaded anew: else two clicks could make two.
  const keep = (old, next) => {
    const was = old.querySelector("input[name=nonce]"), is = next.querySelector("input[name=nonce]");
    if (was && is) is.setAttribute("value", was.getAttribute("value"));
  };

  const swap = (old, next) => {
    keep(old, next);
    if (old.isEqualNode(next) || typing(old)) return;
    const open = [...old.querySelectorAll("details[open][id]")].map((d) => d.id);
    const scrolled = [...old.querySelectorAll("[role=region]")].map((r) => [r.getAttribute("aria-label"), r.scrollLeft, r.scrollTop]);
    const focus = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
    old.replaceChildren(...next.cloneNode(true).childNodes);
    for (const id of open) { const d = document.getElementById(id); if (d) d.open = true; }
    for (const r of old.querySelectorAll("[role=region]")) {
      const was = scrolled.find((s) => s[0] === r.getAttribute("aria-label"));
      if (was) { r.scrollLeft = was[1]; r.scrollTop = was[2]; }
    }
    if (focus) { const at = old.querySelector(focus); if (at) at.focus({ preventScroll: true }); }
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok) { say("cannot be read now: reload"); return; }
      for (const old of document.querySelectorAll("[data-swap]")) {
        const next = fresh.querySelector(`[data-swap="${old.dataset.swap}"]`);
        if (next) swap(old, next);
      }
      say(over ? "gone: reload" : source && source.readyState === EventSource.OPEN ? "live" : "not connected");
    } catch (_) {
      say(over ? "gone: reload" : "not connected");
    } finally {
      busy = false;
      if (again) { again = false; later(); }
    }
  };
  const later = () => { if (!pending) pending = setTimeout(() => { pending = 0; refresh(); }, 100); };

  // A browser connects again by itself where a connection was lost, but not where the answer was a refusal, as while the console is
  // rolled out. The time until the next try is in milliseconds.
  const tryFirst = 5000, tryMost = 60000;
  let source = null, wait = tryFirst, timer = 0, over = false;
  const connect = () => {
    clearTimeout(timer); // of a try that this one makes needless
    over = false;
    source = new EventSource(address);
    source.onopen = () => { wait = tryFirst; say("live"); };
    source.onerror = () => {
      say("not connected");
      if (source.readyState !== EventSource.CLOSED) return;
      source = null;
      timer = setTimeout(() => { if (!document.hidden) come(); }, wait);
      wait = Math.min(2 * wait, tryMost);
    };
    source.addEventListener("changed", later);
    source.addEventListener("gone", () => { over = true; source.close(); say("gone: reload"); });
  };
  // A browser has six connections to a server: pages that nobody looks at need none.
  const leave = () => { if (source) source.close(); source = null; };
  const come = () => { if (!source) { connect(); refresh(); } };
  document.addEventListener("visibilitychange", () => document.hidden ? leave() : come());
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", (e) => { if (e.persisted) come(); });
  if (!document.hidden) connect();
})();
