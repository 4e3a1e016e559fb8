// What pages do by themselves where scripts run; everything works without.
"use strict";
// A choice sends its form: its button is for who has no script, or uses the keyboard.
for (const choice of document.querySelectorAll("select[data-send]")) {
  choice.addEventListener("change", () => choice.form.requestSubmit());
}
// A page that looks again: its main part is replaced, unless somebody is at it with the keyboard.
const again = document.querySelector("[data-again]");
if (again) {
  const main = document.getElementById("main");
  const told = () => { main.querySelector("[data-again-note]").hidden = false; };
  told();
  setInterval(async () => {
    if (document.hidden || main.contains(document.activeElement)) return;
    try {
      const answer = await fetch(location.href);
      if (answer.status === 401) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (!answer.ok || !fresh) return;
      main.replaceChildren(...fresh.childNodes);
      const [was, now] = [document, page].map((side) => side.querySelector(".notices"));
      if (was) was.remove();
      if (now) main.before(now);
      told();
    } catch {
      // the console is away: what is shown stays
    }
  }, 1000 * Number(again.dataset.again));
}
