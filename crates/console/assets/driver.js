// The driver page works without this script, but does not update. The script adds: automatic updates, countdowns, the position of the
// device, and the code of a sign-in link.
(() => {
  "use strict";
  document.documentElement.classList.remove("no-script");
  const base = document.body.dataset.base;
  const texts = JSON.parse(document.body.dataset.texts || "{}");
  const say = (name, value) => (texts[name] || name).replace(/\{[a-z]+\}/, String(value));

  // A sign-in link has its code after '#', which browsers do not send to a server. The driver must press the button, because a link that
  // only opens must not use up the code.
  const code = document.querySelector("input[name=code]");
  if (code) {
    const readCode = () => {
      const given = new URLSearchParams(location.hash.slice(1)).get("code");
      if (!given) return;
      code.value = given;
      // Removes the code from the browser's history.
      history.replaceState(null, "", location.pathname);
    };
    readCode();
    // A second link in the same tab changes only the part after '#'.
    window.addEventListener("hashchange", readCode);
    return;
  }
  const live = () => document.getElementById("live");
  if (!live()) return;
  // A notice is shown once, and not again after a reload.
  history.replaceState(null, "", base);

  // Time limits count by the server's clock, not by that of the device.
  let skew = 0;
  const readClock = () => { skew = Date.parse(live().dataset.now) - Date.now(); };
  const secondsTo = (time) => Math.ceil((Date.parse(time) - Date.now() - skew) / 1000);
  const span = (s) => (s < 60 ? s + " s" : Math.floor(s / 60) + " min " + (s % 60) + " s");
  const tick = () => {
    for (const time of live().querySelectorAll("time.countdown")) time.textContent = say("in", span(Math.max(0, secondsTo(time.dateTime))));
    for (const time of live().querySelectorAll("time:not(.countdown)")) time.textContent = new Date(time.dateTime).toLocaleString(document.documentElement.lang);
    let over = false;
    for (const bar of live().querySelectorAll("progress[data-until]")) {
      bar.value = Math.max(0, secondsTo(bar.dataset.until));
      over = over || (bar.value === 0 && !bar.dataset.over);
      if (bar.value === 0) bar.dataset.over = "yes";
    }
    if (over) refresh();
  };

  const connection = document.getElementById("connection");
  const showProblem = (text) => {
    connection.textContent = text;
    connection.hidden = text === "";
  };

  // A text about a tap that was not sent stays until there is a connection.
  const showOffline = () => { if (connection.hidden) showProblem(say("offline")); };

  // Replaces the parts of the page that the server rendered again.
  const adopt = (page, isAnswer) => {
    const fresh = page.getElementById("live");
    if (!fresh) throw new Error("the answer is another page");
    const notice = page.getElementById("notice");
    if (isAnswer || notice.childElementCount > 0) document.getElementById("notice").replaceWith(notice);
    const before = live().dataset;
    const isSame = fresh.dataset.known === before.known && fresh.dataset.seen === before.seen;
    const isNew = fresh.dataset.known !== before.known && fresh.querySelector(".offer");
    if (isSame && !isAnswer) live().dataset.now = fresh.dataset.now;
    else live().replaceWith(fresh);
    readClock();
    tick();
    watchPlace();
    // Browsers allow this only after the first tap.
    if (isNew && navigator.vibrate && navigator.userActivation?.hasBeenActive) navigator.vibrate([200, 100, 200]);
  };
  const show = async (answer, isAnswer) => {
    const path = new URL(answer.url).pathname;
    // The session has ended.
    if (answer.ok && path !== base) { location.href = path; return; }
    if (!answer.ok && !isAnswer) throw new Error("status " + answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // The page of an error replaces this page only if it answers an action.
    if (!answer.ok) { showProblem(page.querySelector("main").textContent.trim()); return; }
    adopt(page, isAnswer);
    showProblem("");
  };

  // One request waits on the server until something changes. A refresh ends it and asks at once.
  let asking = new AbortController();
  let isUrgent = false;
  // The action that is being sent. Its answer must not be followed by an older state.
  let acting = null;
  const refresh = () => { isUrgent = true; asking.abort(); };
  const pause = (ms) => new Promise((done) => {
    setTimeout(done, ms);
    addEventListener("online", done, { once: true });
    asking.signal.addEventListener("abort", done, { once: true });
  });
  const ask = async () => {
    asking = new AbortController();
    const { wait, known, seen } = live().dataset;
    const query = new URLSearchParams({ wait: isUrgent ? 0 : wait, known, seen });
    isUrgent = false;
    const limit = setTimeout(() => asking.abort(), (Number(wait) + 10) * 1000);
    try {
      await show(await fetch(base + "?" + query, { signal: asking.signal, cache: "no-store" }), false);
      return true;
    } catch {
      // An interrupted request is no fault.
      if (!isUrgent) showOffline();
      return isUrgent;
    } finally {
      clearTimeout(limit);
    }
  };
  const follow = async () => {
    for (;;) {
      await acting;
      const isFine = await ask();
      if (!isFine) {
        await pause(3000);
        // What happened in the meantime is shown at once.
        isUrgent = true;
      } else if (!isUrgent) {
        // Limits the requests if the server answers without a wait.
        await pause(500);
      }
    }
  };
  addEventListener("offline", showOffline);
  addEventListener("online", refresh);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  // Sends a form without leaving the page, so that a lost connection does not replace the page.
  const send = async (form, button) => {
    button.disabled = true;
    try {
      const body = new URLSearchParams(new FormData(form));
      await show(await fetch(form.getAttribute("action"), { method: "POST", body, signal: AbortSignal.timeout(15000) }), true);
    } catch {
      showProblem(say("not_sent"));
    }
    button.disabled = false;
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!live().contains(form)) return;
    event.preventDefault();
    const button = form.querySelector("button");
    if (button.disabled) return;
    acting = send(form, button);
    refresh();
  });

  // Sends the position while the driver is on duty, at most every ten seconds.
  const place = document.getElementById("place");
  let watched = null;
  let sentAt = 0;
  const sendPlace = async ({ coords }) => {
    if (Date.now() - sentAt < 10000) return;
    sentAt = Date.now();
    const body = new URLSearchParams({ latitude: coords.latitude, longitude: coords.longitude });
    try {
      const answer = await fetch(base + "/location", { method: "POST", body, signal: AbortSignal.timeout(15000) });
      place.textContent = answer.status === 204 ? say("place_sent", new Date().toLocaleTimeString(document.documentElement.lang)) : say("place_not_sent");
    } catch {
      sentAt = 0;
      place.textContent = say("place_not_sent");
    }
  };
  const watchPlace = () => {
    const isOn = live().dataset.duty === "true";
    if (isOn && watched === null && "geolocation" in navigator) {
      const refused = () => { place.textContent = say("place_unknown"); };
      watched = navigator.geolocation.watchPosition(sendPlace, refused, { enableHighAccuracy: true, maximumAge: 5000 });
    } else if (!isOn && watched !== null) {
      navigator.geolocation.clearWatch(watched);
      watched = null;
      place.textContent = "";
    }
  };

  // Push messages wake this device while the page is closed. The browser asks for permission when the driver presses the button.
  const push = document.getElementById("push");
  const showPush = (name, hasButton) => {
    const status = push.querySelector("span");
    status.textContent = status.dataset[name];
    push.querySelector("button").hidden = !hasButton;
  };
  const register = async (subscription) => {
    const { endpoint, keys } = subscription.toJSON();
    const body = new URLSearchParams({ endpoint, p256dh: keys.p256dh, auth: keys.auth });
    const answer = await fetch(base + "/push", { method: "POST", body, signal: AbortSignal.timeout(15000) });
    if (answer.status !== 204) throw new Error("status " + answer.status);
    showPush("on", false);
  };
  const subscribe = async (worker) => {
    const options = { userVisibleOnly: true, applicationServerKey: push.dataset.key };
    try {
      return await worker.pushManager.subscribe(options);
    } catch (error) {
      const earlier = await worker.pushManager.getSubscription();
      if (!earlier) throw error;
      // The company has a new key.
      await earlier.unsubscribe();
      return worker.pushManager.subscribe(options);
    }
  };
  const offerPush = async () => {
    if (!push || !("serviceWorker" in navigator) || !("PushManager" in window)) return;
    const worker = await navigator.serviceWorker.register(base + "/sw.js?" + new URLSearchParams({ text: push.dataset.text }));
    push.hidden = false;
    push.querySelector("button").addEventListener("click", async () => {
      try {
        await register(await subscribe(worker));
      } catch {
        showPush("failed", true);
      }
    });
    // The session may be newer than the subscription of the browser.
    const known = await worker.pushManager.getSubscription();
    if (known && Notification.permission === "granted") await register(known);
  };

  readClock();
  tick();
  setInterval(tick, 1000);
  watchPlace();
  follow();
  offerPush().catch(() => {});
})();
