/* main.tsx - reads what the file holds, and shows it. */
import { render } from "preact";
import { readReport, type Source } from "./data/source";
import { parseFragment, Store, StoreContext } from "./store";
import "./style/theme.css";
import "./style/page.css";
import "./style/controls.css";
import "./style/panels.css";
import "./style/views.css";
import "./style/texts.css";
import { App } from "./view/app";
import { Empty } from "./view/empty";
import { Connect } from "./view/live_page";

const dark = matchMedia("(prefers-color-scheme: dark)");

function show(source: Source): void {
    const store = new Store(source, location.hash, dark.matches ? "dark" : "light");
    /* The first to hear of a change: views ask the document for its colors. */
    const follow = () => (document.documentElement.dataset.theme = store.state.theme);
    follow();
    store.listen(follow);
    document.title = [
        source.title || source.profiles.map((profile) => profile.name).join(" and "),
        "headlight",
    ]
        .filter(Boolean)
        .join(" · ");
    dark.addEventListener("change", () => store.set({ theme: dark.matches ? "dark" : "light" }));
    addEventListener("hashchange", () => store.set(parseFragment(location.hash)));
    render(null, page());
    render(
        <StoreContext.Provider value={store}>
            <App />
        </StoreContext.Provider>,
        page(),
    );
}

function page(): HTMLElement {
    return document.getElementById("page")!;
}

try {
    const report = readReport(document);
    if (report) show(report);
    else {
        document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
        /* Served, the bare page is the live one; from disk there is nobody to ask. */
        render(location.protocol === "file:" ? <Empty /> : <Connect onReady={show} />, page());
    }
} catch (error) {
    document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
    render(<Empty error={error instanceof Error ? error.message : String(error)} />, page());
}
