"""The report in a real browser: Debian's chromium, headless, driven by playwright."""

from __future__ import annotations

import shutil

import pytest

from calib.reporting.page import render_html
from calib.workflow import calibrate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '=HYPERLINK("http://x.invalid","y")',
    "</script><script>alert(2)</script>",
    "a&b'c\"d",
)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra test")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory, calibrated):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_html(calibrated("h200-vllm-pp").report_data), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, report):
    """The page with everything it says on its console and every request it makes."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.said, page.asked = [], []
    page.on("console", lambda m: page.said.append(m.text))
    page.on("pageerror", lambda e: page.said.append(str(e)))
    page.on("request", lambda r: page.asked.append(r.url))
    page.on("dialog", lambda d: (page.said.append(f"dialog {d.message}"), d.dismiss()))
    page.goto(report.as_uri())
    yield page
    page.close()


def test_no_error_and_no_request_leaves_the_page(opened, report):
    opened.wait_for_timeout(300)
    assert opened.said == []
    assert [u for u in opened.asked if not u.startswith("data:")] == [report.as_uri()]


def test_the_verdict_is_on_the_first_screen(opened):
    for selector in (".card", ".changes", "nav"):
        box = opened.locator(selector).first.bounding_box()
        assert box["y"] + box["height"] <= 800
        assert box["x"] + box["width"] <= 1280
    assert "picks the best configuration for 4 of 4 models" in opened.locator(".card").first.inner_text()


def test_every_image_is_drawn_and_has_words(opened):
    images = opened.locator("img")
    assert images.count() >= 6
    for i in range(images.count()):
        image = images.nth(i)
        assert len(image.get_attribute("alt")) > 60
        assert image.evaluate("e => e.complete && e.naturalWidth > 100")


def column(page, table, index):
    return page.locator(f"#{table} tbody tr td:nth-child({index})").all_inner_texts()


def test_tables_sort_by_number_and_by_text(opened):
    head = opened.locator("#throughput thead th", has_text="measured")
    head.locator("button").click()
    values = [float(v) for v in column(opened, "throughput", 7)]
    assert values == sorted(values)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert [float(v) for v in column(opened, "throughput", 7)] == sorted(values, reverse=True)
    opened.locator("#throughput thead th", has_text="model").locator("button").click()
    models = column(opened, "throughput", 2)
    assert models[0] == "Qwen/Qwen3-0.6B"
    assert models[3] == "Qwen/Qwen3-8B"  # 8 before 14: numbers in names count as numbers


def test_tables_filter_and_page(opened):
    field = opened.locator("#throughput_matched input[type=search]")
    status = opened.locator("#throughput_matched [role=status]")
    assert status.inner_text() == "rows 1 to 50 of 78"
    opened.locator("#throughput_matched button", has_text="next").click()
    assert status.inner_text() == "rows 51 to 78 of 78"
    field.fill("14b yes")
    assert status.inner_text().endswith("of 18, filtered from 78")
    assert set(column(opened, "throughput_matched", 2)) == {"Qwen/Qwen3-14B"}
    field.fill("no such row")
    assert status.inner_text() == "rows 0 to 0 of 0, filtered from 78"


def test_the_keyboard_is_enough(opened):
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    button = opened.locator("#throughput thead th button").nth(6)
    button.focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#throughput thead th").nth(6).get_attribute("aria-sort") == "ascending"
    assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


TEXTS = "h1, h2, p, a, td, th button, .mark, .card, input, .bar span, .bar button, code, figcaption"
LUMINANCE = """(SELECTED) => {
  const lum = (c) => { const v = c.match(/[\\d.]+/g).map(Number).slice(0, 3).map((x) => { x /= 255;
    return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; }); return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c !== "rgba(0, 0, 0, 0)") return c; } return "rgb(255, 255, 255)"; };
  const worst = {};
  for (const e of document.querySelectorAll(SELECTED)) {
    if (!e.textContent.trim() || e.disabled || e.hidden) continue;
    const s = getComputedStyle(e), a = lum(s.color), b = lum(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const key = e.tagName + "." + e.className;
    if (!(key in worst) || ratio < worst[key]) worst[key] = ratio;
  }
  return worst;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_ground(opened, scheme):
    """WCAG 2.1 AA: 4.5 to 1."""
    opened.emulate_media(color_scheme=scheme)
    ratios = opened.evaluate(LUMINANCE, TEXTS)
    assert len(ratios) > 8
    assert {k: round(v, 2) for k, v in ratios.items() if v < 4.5} == {}


def test_print_shows_every_row(opened):
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(column(opened, "throughput_matched", 2)) == 78
    opened.emulate_media(media="print")
    assert not opened.locator("nav").is_visible()
    assert not opened.locator(".bar").first.is_visible()
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert len(column(opened, "throughput_matched", 2)) == 50


def test_names_are_text(browser, simulated, tmp_path):
    path = tmp_path / "hostile.html"
    campaign = simulated(dict.fromkeys(HOSTILE, 0.2))
    path.write_text(render_html(calibrate(campaign).report_data), encoding="utf-8")
    page, said = browser.new_page(), []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("dialog", lambda d: (said.append(d.message), d.dismiss()))
    page.goto(path.as_uri())
    page.wait_for_timeout(300)
    assert said == []
    assert set(column(page, "observed", 3)) == set(HOSTILE)
    page.close()


def test_a_page_without_its_script_still_shows_everything(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert len(column(page, "throughput_matched", 2)) == 78
    context.close()
