// Service worker of the driver page. It shows a notification for each push message, and opens the page when the driver taps it. The
// message contains no data of the order. The address of this file has the text of the notification.
"use strict";
const text = new URLSearchParams(self.location.search).get("text") || "dispatchq";
const page = new URL("../driver", self.location).href;
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("push", (event) => {
  // One notification at a time. A further offer sounds again.
  const shown = self.registration.showNotification(text, { tag: "offer", renotify: true, requireInteraction: true, vibrate: [200, 100, 200] });
  event.waitUntil(shown);
});
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const open = async () => {
    const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
    const shown = windows.find((one) => one.url.split(/[?#]/)[0] === page);
    return shown ? shown.focus() : self.clients.openWindow(page);
  };
  event.waitUntil(open());
});
