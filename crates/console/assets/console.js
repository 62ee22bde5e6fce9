// The console works without this script, but its pages are static. The script adds: automatic refresh that can be paused, countdowns,
// a choice of time format, keyboard shortcuts, and a notification when the desk has new orders.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.remove("no-script");
  // Texts of the catalogue in the language of the page, with one value for their placeholder.
  const texts = JSON.parse(document.body.dataset.texts || "{}");
  const say = (name, value) => (texts[name] || name).replace(/\{[a-z]+\}/, String(value));
  const store = {
    get(name) { try { return localStorage.getItem("dispatchq." + name); } catch { return null; } },
    set(name, value) { try { localStorage.setItem("dispatchq." + name, value); } catch { /* private windows */ } },
  };
  const all = (selector, within = document) => within.querySelectorAll(selector);

  // The page of a refused form is shown at the address of the form. Its own address is kept, so that a reload sends nothing.
  const shownAgain = document.body.dataset.page;
  if (shownAgain) history.replaceState(null, "", shownAgain);
  // Moves the focus to the refusal, so that it is read first, even if the browser did not do so.
  const refused = document.getElementById("refused");
  if (refused) refused.focus();

  // The text about an action is shown once, and not again after a reload.
  const here = new URL(location.href);
  if (here.searchParams.has("did")) {
    here.searchParams.delete("did");
    history.replaceState(null, "", here);
  }

  // Times are relative to the server's clock, not to that of this machine.
  const served = document.body.dataset.now;
  const skew = served ? Date.parse(served) - Date.now() : 0;
  const now = () => Date.now() + skew;
  const span = (ms) => {
    const s = Math.max(0, Math.floor(ms / 1000));
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
    return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
  };
  const two = (n) => String(n).padStart(2, "0");
  const shown = {
    utc: (d) => `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())} ${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())} UTC`,
    local: (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`,
    relative: (d) => (d.getTime() > now() ? say("in", span(d.getTime() - now())) : say("ago", span(now() - d.getTime()))),
  };
  let mode = shown[store.get("times")] ? store.get("times") : "utc";
  const tick = () => {
    for (const time of all("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (time.classList.contains("countdown")) {
        const left = at.getTime() - now();
        time.classList.toggle("late", left < 0);
        time.textContent = left < 0 ? say("late", span(-left)) : say("in", span(left));
      } else {
        time.textContent = shown[mode](at);
      }
    }
  };
  const times = document.getElementById("times");
  if (times) {
    times.value = mode;
    times.addEventListener("change", () => { mode = times.value; store.set("times", mode); tick(); });
  }
  tick();
  setInterval(tick, 1000);

  // Refresh. A stream of the server reports changed rows; without a stream the page refreshes by itself. In both cases it refreshes at
  // most once per interval, and waits while the person has text selected, a field focused, or a form open.
  const every = Number(document.body.dataset.refresh || 0) * 1000;
  const changes = document.body.dataset.changes || "";
  // Refresh interval for changes that no stream reports, such as a moved driver.
  const unasked = Math.max(every, 30000);
  const live = () => document.getElementById("live");
  const state = document.getElementById("live-state");
  const pause = document.getElementById("pause");
  let paused = store.get("paused") === "yes";
  let failed = false;
  let stale = false;
  let asked = Date.now();
  let awaited = null;
  let stream = null;
  let streamFrom = 0;
  const isReading = () => {
    const part = live();
    if (!part || document.hidden) return true;
    const focused = document.activeElement;
    if (focused && part.contains(focused) && focused.matches("input, select, textarea")) return true;
    if (part.querySelector("details[open], input[type=checkbox]:checked")) return true;
    const selected = getSelection();
    return Boolean(selected && !selected.isCollapsed && part.contains(selected.anchorNode));
  };
  // A page that waits for the person shows this, because its data is outdated.
  const states = { live: say("live"), held: say("held"), paused: say("paused"), lost: say("lost") };
  const showState = () => {
    if (!state) return;
    const is = paused ? "paused" : failed ? "lost" : !document.hidden && isReading() ? "held" : "live";
    if (state.dataset.state === is) return;
    state.dataset.state = is;
    state.textContent = states[is];
    pause.textContent = paused ? say("resume") : say("pause");
    pause.setAttribute("aria-pressed", String(paused));
  };
  const look = () => {
    if (paused || isReading()) return;
    const listens = stream !== null && stream.readyState === EventSource.OPEN;
    const wait = listens && !stale ? unasked : every;
    const left = asked + wait - Date.now();
    if (left > 0) {
      // At the exact time, not at the next second.
      if (stale && !awaited) awaited = setTimeout(() => { awaited = null; look(); }, left);
      return;
    }
    asked = Date.now();
    stale = false;
    htmx.trigger(live(), "refresh");
  };
  // Hidden pages keep no connection, because browsers limit the connections to one server.
  const hangUp = () => { if (stream) { stream.close(); stream = null; } };
  const listen = () => {
    const wanted = changes !== "" && "EventSource" in window && !paused && !document.hidden;
    if (!wanted) { hangUp(); return; }
    if (stream || Date.now() < streamFrom) return;
    stream = new EventSource(changes);
    let opened = false;
    // The page may have missed changes between two streams.
    stream.addEventListener("open", () => { stale = stale || opened || failed; opened = true; look(); });
    stream.addEventListener("change", () => { stale = true; look(); });
    stream.addEventListener("error", () => {
      // The browser reconnects by itself, unless the server offers no stream.
      if (stream && stream.readyState === EventSource.CLOSED) { hangUp(); streamFrom = Date.now() + 60000; }
    });
  };
  if (every > 0 && pause) {
    pause.hidden = false;
    state.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      store.set("paused", paused ? "yes" : "no");
      stale = true;
      showState();
      listen();
      look();
    });
    // A refresh that was requested before the person opened a form must not close it. The keyboard focus and the horizontal scroll position
    // are kept.
    let held = null;
    let aside = [];
    const targets = "a[href], button, summary, [tabindex]";
    const nameTarget = (e) => `${e.tagName} ${e.getAttribute("href") || e.getAttribute("aria-label") || e.textContent.trim()}`;
    const holdTarget = (e) => {
      const inRow = e.closest("tbody tr");
      return { name: nameTarget(e), row: inRow && signOf(inRow) };
    };
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      if (isReading()) { event.detail.shouldSwap = false; return; }
      const focused = document.activeElement;
      held = live().contains(focused) && focused.matches(targets) ? holdTarget(focused) : null;
      aside = [...all(".scroll", live())].map((part) => part.scrollLeft);
    });
    document.body.addEventListener("htmx:afterSwap", () => {
      all(".scroll", live()).forEach((part, i) => { if (aside[i]) part.scrollLeft = aside[i]; });
      if (held === null) return;
      const place = held.row ? findRow(held.row) : live();
      const again = place && [...all(targets, place)].find((e) => nameTarget(e) === held.name);
      if (again) again.focus({ preventScroll: true });
    });
    // The data is outdated when a hidden page is shown again.
    document.addEventListener("visibilitychange", () => { stale = true; listen(); look(); });
    addEventListener("pagehide", hangUp);
    addEventListener("pageshow", listen);
    setInterval(() => { listen(); look(); showState(); }, 1000);
    document.body.addEventListener("htmx:sendError", () => { failed = true; showState(); });
    document.body.addEventListener("htmx:responseError", () => { failed = true; showState(); });
    document.body.addEventListener("htmx:afterSwap", () => { failed = false; showState(); tick(); count(); mark(); });
    showState();
    listen();
  }

  // Desk notifications: the count in the title, and a sound and a notification when the count has increased.
  let waiting = null;
  const title = document.title;
  const count = () => {
    const part = live();
    const wanted = part && part.dataset.waiting;
    if (!wanted) return;
    const number = Number(wanted);
    document.title = number > 0 ? `(${number}) ${title}` : title;
    if (waiting !== null && number > waiting && store.get("call") === "yes") call(number);
    waiting = number;
  };
  const call = (number) => {
    try {
      const audio = new AudioContext();
      const tone = audio.createOscillator();
      const loud = audio.createGain();
      loud.gain.setValueAtTime(0.08, audio.currentTime);
      loud.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.5);
      tone.frequency.value = 660;
      tone.connect(loud).connect(audio.destination);
      tone.start();
      tone.stop(audio.currentTime + 0.5);
    } catch { /* no sound here */ }
    if ("Notification" in window && Notification.permission === "granted") {
      const body = say("waiting", number);
      new Notification("dispatchq", { body, tag: "desk" });
    }
  };
  const bell = document.getElementById("call");
  if (bell) {
    const show = () => {
      const calls = store.get("call") === "yes";
      bell.textContent = calls ? say("stop_notifying") : say("notify");
    };
    bell.hidden = false;
    bell.addEventListener("click", () => {
      const on = store.get("call") !== "yes";
      store.set("call", on ? "yes" : "no");
      if (on && "Notification" in window && Notification.permission === "default") Notification.requestPermission();
      show();
    });
    show();
  }
  count();

  // The menu of small screens.
  const toggle = document.getElementById("menu-toggle");
  if (toggle) {
    toggle.addEventListener("click", () => {
      const open = document.getElementById("side").classList.toggle("open");
      toggle.setAttribute("aria-expanded", String(open));
    });
  }

  // Buttons that copy a text, such as a new key. Browsers offer the clipboard only over https and on this machine.
  for (const button of all("button[data-copy]")) {
    if (!navigator.clipboard) break;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = say("copied");
      } catch { button.textContent = say("not_copied"); }
    });
  }

  // Prevents sending a form twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    addEventListener("pageshow", () => { delete form.dataset.sent; });
  });

  // Keys: / searches, g and the key of a page open it, j and k select a row and the arrow keys move on from there, Enter opens the row,
  // a letter next to a button of the row presses it, ? shows the help. The selected row stays selected after a refresh.
  let row = -1;
  // Time until which the next key names a page.
  let goesUntil = 0;
  let walked = null;
  // Whether the selected row had the focus before a refresh.
  let walks = false;
  const help = document.getElementById("help");
  const helpOpen = document.getElementById("help-open");
  if (help && helpOpen) {
    helpOpen.hidden = false;
    helpOpen.addEventListener("click", () => help.showModal());
  }
  const rowsOf = () => [...all("tbody tr")];
  // What a row keeps in a refresh. Its name is its page or first cell, and the path of its first action without the action itself: two dead
  // jobs of an order have one page. Cells tell rows of one name apart, such as two jobs without actions; the cells of other rows may change.
  const signOf = (one) => {
    const form = one.querySelector("form[action]");
    const path = form ? form.getAttribute("action").replace(/[^/]*$/, "") : "";
    return {
      name: `${one.dataset.href || (one.cells[0] ? one.cells[0].textContent : "")} ${path}`,
      cells: [...one.cells].slice(0, 2).map((cell) => cell.textContent.trim()).join("|"),
    };
  };
  // Finds a row after a refresh. Returns nothing if several rows may be the one.
  const findRow = (sign) => {
    let same = rowsOf().filter((one) => signOf(one).name === sign.name);
    if (same.length > 1) same = same.filter((one) => signOf(one).cells === sign.cells);
    return same.length === 1 ? same[0] : undefined;
  };
  // Visible buttons of a row. Those in its forms are omitted: a form asks for a reason, and for confirmation if the action is dangerous.
  const buttonsOf = (one) => [...all("summary, button, a.button", one)].filter((e) => !e.closest("details > form") && e.checkVisibility());
  // Gives each button of the row its first letter that is free. Other keys have j, k and g.
  const nameButtons = (one) => {
    const taken = new Set("jkg");
    for (const button of buttonsOf(one)) {
      const letter = [...button.textContent.toLowerCase()].find((c) => /[a-z]/.test(c) && !taken.has(c));
      if (!letter) continue;
      taken.add(letter);
      button.setAttribute("aria-keyshortcuts", letter);
      button.title = say("key", letter);
    }
  };
  const select = (rows, at) => {
    row = at;
    rows.forEach((one, i) => {
      one.classList.toggle("here", i === row);
      for (const button of all("[aria-keyshortcuts]", one)) { button.removeAttribute("aria-keyshortcuts"); button.removeAttribute("title"); }
    });
    if (!rows[row]) return;
    nameButtons(rows[row]);
    rows[row].tabIndex = -1;
  };
  const mark = () => {
    if (row < 0) return;
    const rows = rowsOf();
    const again = rows.indexOf(findRow(walked));
    select(rows, again >= 0 ? again : Math.min(row, rows.length - 1));
    // The row of the same name is there again. Another one gets no focus, because the next letter was meant for the old row.
    if (again >= 0 && walks && document.activeElement === document.body) rows[row].focus({ preventScroll: true });
  };
  document.body.addEventListener("htmx:beforeSwap", () => {
    const one = rowsOf()[row];
    walks = Boolean(one && one.contains(document.activeElement));
  });
  // Presses a button of a row. If that opens a form, its first field gets the focus.
  const press = (button) => {
    button.click();
    const form = button.closest("details[open]");
    const field = form && form.querySelector("input:not([type=hidden]), select, textarea");
    if (field) field.focus();
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const goes = Date.now() < goesUntil;
    goesUntil = 0;
    if (goes) {
      const page = [...all(".menu a[data-key]")].find((link) => link.dataset.key === event.key);
      if (page) { event.preventDefault(); location.href = page.href; }
      return;
    }
    const rows = rowsOf();
    const current = rows[row];
    const isInRow = Boolean(current && current.contains(event.target));
    const step = { j: 1, k: -1, ArrowDown: isInRow && 1, ArrowUp: isInRow && -1 }[event.key];
    if (event.key === "/") {
      const search = document.getElementById("find");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "g") {
      goesUntil = Date.now() + 2000;
    } else if (step && rows.length > 0) {
      event.preventDefault();
      select(rows, Math.min(rows.length - 1, Math.max(0, row + step)));
      walked = signOf(rows[row]);
      rows[row].focus({ preventScroll: true });
      rows[row].scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && current && (event.target === document.body || event.target === current)) {
      const action = current.querySelector("a[href], summary");
      if (current.dataset.href) location.href = current.dataset.href;
      else if (action) action.click();
    } else if (event.key === "?" && help) {
      help.showModal();
    } else if (isInRow && !event.repeat) {
      const button = buttonsOf(current).find((one) => one.getAttribute("aria-keyshortcuts") === event.key);
      if (button) { event.preventDefault(); press(button); }
    }
  });
})();
