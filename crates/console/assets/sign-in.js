// A sign-in link is the address of this page with "#key=dq_..." behind it. Browsers send that part to no server.
(() => {
  "use strict";
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  const field = document.querySelector("input[name=key]");
  if (!key || !field) return;
  // The key is in no history.
  history.replaceState(null, "", location.pathname + location.search);
  field.value = key;
  // Elsewhere a person presses the button: a link from another person must not sign anybody in.
  if (["127.0.0.1", "[::1]", "localhost"].includes(location.hostname)) field.form.requestSubmit();
})();
