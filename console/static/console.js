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
// The Planner: as somebody types or moves a slider, the page is asked again for its parts, and again
// while a better answer is being worked out. The latest question wins.
const plan = document.querySelector("form[data-plan]");
if (plan) {
  document.documentElement.classList.add("scripts");
  let latest = 0, timer = 0, stop = new AbortController();
  const show = (page) => {
    for (const part of page.querySelectorAll("[data-live]")) {
      const here = document.getElementById(part.id);
      if (!here || (here.id === "answer" && here.contains(document.activeElement))) continue;
      here.replaceWith(document.adoptNode(part));
      const field = document.getElementById(part.dataset.for);
      if (field && part.textContent) field.setAttribute("aria-invalid", "true");
      else if (field) field.removeAttribute("aria-invalid");
    }
    for (const slider of plan.querySelectorAll("input[type=range]")) {
      const fresh = page.getElementById(slider.id);
      const field = document.getElementById(slider.dataset.field);
      const text = page.getElementById(slider.dataset.field);
      if (document.activeElement !== field && document.activeElement !== slider) field.value = text.value;
      slider.dataset.values = fresh.dataset.values;
      if (document.activeElement === slider) continue;
      slider.value = fresh.value;
      slider.setAttribute("aria-valuetext", fresh.getAttribute("aria-valuetext"));
      slider.nextElementSibling.value = fresh.value;
    }
    for (const name of ["kind_was", "of_was"]) {
      plan.elements[name].value = page.querySelector(`[name=${name}]`).value;
    }
  };
  const ask = async () => {
    const mine = ++latest;
    clearTimeout(timer);
    stop.abort();
    stop = new AbortController();
    const query = new URLSearchParams(new FormData(plan));
    try {
      const answer = await fetch(`${plan.getAttribute("action")}?${query}`, { signal: stop.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine !== latest || !page.getElementById("answer")) return;
      show(page);
      for (const name of [...query.keys()]) if (/_(at|was)$/.test(name)) query.delete(name);
      history.replaceState(null, "", `?${query}`);
    } catch {
      if (mine !== latest) return; // a later question took its place
    }
    later();
  };
  const later = () => {
    const more = Number(document.getElementById("answer").dataset.more || 0);
    clearTimeout(timer);
    if (more) timer = setTimeout(ask, document.hidden ? 4 * more : more);
  };
  plan.addEventListener("input", (event) => {
    const from = event.target;
    if (from.type === "range") {
      const text = from.dataset.values.split(";")[from.value];
      document.getElementById(from.dataset.field).value = text;
      from.setAttribute("aria-valuetext", text);
      from.nextElementSibling.value = from.value;
    }
    if (from.hasAttribute("data-quiet")) return;
    clearTimeout(timer);
    timer = setTimeout(ask, from.type === "text" ? 250 : 40);
  });
  later();
}
