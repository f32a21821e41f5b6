"use strict";
/* Sorting, filtering and paging of the tables. Nothing here reads the page's text as anything but text. */
(() => {
  const PAGE = 50;
  const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const value = (cell) => (cell.dataset.v === undefined ? null : Number(cell.dataset.v));
  const compare = (a, b, column, sign) => {
    const x = a.cells[column], y = b.cells[column];
    const u = x.textContent === "", w = y.textContent === "";
    if (u || w) return u === w ? 0 : u ? 1 : -1; /* what is not known stays last */
    const m = value(x), n = value(y);
    return sign * (m !== null && n !== null ? m - n : order.compare(x.textContent, y.textContent));
  };
  const button = (text, label) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    return made;
  };
  for (const table of document.querySelectorAll("table.data")) {
    const body = table.tBodies[0], rows = Array.from(body.rows), heads = Array.from(table.tHead.rows[0].cells);
    const name = table.getAttribute("aria-label");
    let shown = rows.slice(), page = 0;
    const bar = document.createElement("div");
    bar.className = "bar";
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "filter rows";
    field.setAttribute("aria-label", "Filter rows of " + name);
    const back = button("‹ previous", "Previous rows of " + name), next = button("next ›", "Next rows of " + name);
    const status = document.createElement("span");
    status.setAttribute("role", "status");
    bar.append(field, back, next, status);
    if (rows.length > 8) table.parentElement.before(bar);
    const draw = () => {
      const pages = Math.max(1, Math.ceil(shown.length / PAGE));
      page = Math.min(page, pages - 1);
      body.replaceChildren(...shown.slice(page * PAGE, (page + 1) * PAGE));
      back.hidden = next.hidden = pages === 1;
      back.disabled = page === 0;
      next.disabled = page === pages - 1;
      const from = shown.length ? page * PAGE + 1 : 0, to = Math.min(shown.length, (page + 1) * PAGE);
      status.textContent = shown.length === rows.length && pages === 1 ? rows.length + " rows"
        : "rows " + from + " to " + to + " of " + shown.length + (shown.length < rows.length ? ", filtered from " + rows.length : "");
    };
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      shown = rows.filter((row) => words.every((w) => row.textContent.toLowerCase().includes(w)));
      page = 0;
      draw();
    });
    back.addEventListener("click", () => { page -= 1; draw(); });
    next.addEventListener("click", () => { page += 1; draw(); });
    heads.forEach((head, column) => {
      const sorter = button("", "Sort " + name + " by " + head.textContent);
      sorter.className = "sort";
      sorter.append(...head.childNodes);
      head.append(sorter);
      head.setAttribute("aria-sort", "none");
      sorter.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach((h) => h.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        rows.sort((a, b) => compare(a, b, column, sign));
        const kept = new Set(shown);
        shown = rows.filter((row) => kept.has(row));
        draw();
      });
    });
    addEventListener("beforeprint", () => body.replaceChildren(...shown));
    addEventListener("afterprint", draw);
    draw();
  }
})();
