// The page of a customer works without this script, but does not update. The script requests the page again and replaces its live part.
(() => {
  "use strict";
  document.documentElement.classList.remove("no-script");
  const EVERY_MS = 10000;
  const SLOW_MS = 60000;
  // A single refusal may be the limit of requests. After several, the order has ended.
  const SHOWN_AFTER = 2;
  const STOPS_AFTER = 5;
  let refused = 0;
  let timer = 0;

  const adopt = (page) => {
    const fresh = page.getElementById("live");
    if (!fresh) throw new Error("the answer is another page");
    const live = document.getElementById("live");
    document.title = page.title;
    if (fresh.innerHTML !== live.innerHTML) live.replaceChildren(...fresh.childNodes);
  };
  const ask = async () => {
    const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(EVERY_MS) });
    if (!answer.ok && answer.status !== 404) throw new Error("status " + answer.status);
    refused = answer.ok ? 0 : refused + 1;
    if (answer.ok || refused >= SHOWN_AFTER) adopt(new DOMParser().parseFromString(await answer.text(), "text/html"));
  };
  const follow = async () => {
    clearTimeout(timer);
    if (document.hidden || refused >= STOPS_AFTER) return;
    try {
      await ask();
      document.getElementById("connection").hidden = true;
    } catch {
      document.getElementById("connection").hidden = false;
    }
    clearTimeout(timer);
    timer = setTimeout(follow, refused >= SHOWN_AFTER ? SLOW_MS : EVERY_MS);
  };
  // What happened while the page was hidden or offline is shown at once.
  document.addEventListener("visibilitychange", follow);
  addEventListener("online", follow);
  timer = setTimeout(follow, EVERY_MS);
})();
