// A sign-in link is the address of this page followed by "#key=dq_...". Browsers do not send this part to a server.
(() => {
  "use strict";
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  const field = document.querySelector("input[name=key]");
  if (!key || !field) return;
  // Removes the key from the browser's history.
  history.replaceState(null, "", location.pathname + location.search);
  field.value = key;
  // On other machines the person must press the button, because a link from someone else must not sign the person in.
  if (["127.0.0.1", "[::1]", "localhost"].includes(location.hostname)) field.form.requestSubmit();
})();
