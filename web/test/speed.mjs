/* speed.mjs - how fast large reports are: times are printed, and bounded. */
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { openFile, sampleReport } from "./drive.mjs";
import { note, test } from "./tap.mjs";

const FRAME = 33; /* milliseconds */
const quantile = (list, share) =>
    [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(share * list.length))];

/* From the start of navigation to the first picture of all heads. */
async function opening(browser) {
    const path = sampleReport("large", { layers: 80, heads: 64, tokens: 0 });
    const { page, check } = await openFile(browser, path);
    await page.waitForFunction(() => performance.getEntriesByName("heatmap").length > 0);
    const time = await page.evaluate(() => performance.getEntriesByName("heatmap")[0].startTime);
    const { x, y, width, height } = await page.locator("#heads canvas").boundingBox();
    await page.mouse.click(x + width / 2, y + height / 2);
    assert.match(await page.locator(".card h2").innerText(), /^L\d+H\d+/);
    note(
        `80 x 64 heads, ${(statSync(path).size / 1e6).toFixed(2)} MB: first picture after ${time.toFixed(0)} ms`,
    );
    assert.ok(time < 1000, `${time} ms`);
    await check();
}

/* Frames while the map is dragged: what the page's own work takes, and what passes between frames. */
async function dragging(browser) {
    const { page, check } = await openFile(
        browser,
        sampleReport("long", { layers: 8, heads: 8, tokens: 4096, maps: 1 }),
        { fragment: "#tab=tokens&sel=L0H0" },
    );
    const box = await page.locator("#map canvas").boundingBox();
    await page.waitForTimeout(500);
    await page.evaluate(() => {
        window.frames_ = [];
        let last = performance.now();
        const step = (now) => {
            window.frames_.push(now - last);
            last = now;
            requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
    });
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    for (let i = 0; i < 12; i++) await page.mouse.wheel(0, -240);
    await page.waitForTimeout(300);
    await page.evaluate(() => (window.frames_.length = 0));
    await page.mouse.down();
    for (let i = 1; i <= 60; i++)
        await page.mouse.move(box.x + box.width / 2 + 3 * (i % 2 ? i : -i), box.y + box.height / 2 - 3 * i);
    await page.mouse.up();
    const frames = (await page.evaluate(() => window.frames_)).slice(1);
    note(
        `4096 tokens dragged: ${frames.length} frames, median ${quantile(frames, 0.5).toFixed(1)} ms, 95% ${quantile(frames, 0.95).toFixed(1)} ms, longest ${Math.max(...frames).toFixed(1)} ms`,
    );
    assert.ok(frames.length > 10);
    assert.ok(quantile(frames, 0.95) <= FRAME, `95% of frames take ${quantile(frames, 0.95)} ms`);
    await check();
}

export function speed(browser) {
    test("80 layers of 64 heads are there within a second", () => opening(browser));
    test("a map of 4096 tokens follows the hand: frames of at most 33 ms", () => dragging(browser));
}
