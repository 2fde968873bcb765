/* empty.tsx - a page without data, or with data that it cannot read. */

export function Empty({ error }: { error?: string }) {
    return (
        <main class="empty">
            <svg width="120" height="72" viewBox="0 0 120 72" aria-hidden="true">
                <path d="M8 36A28 28 0 0 1 36 8v56A28 28 0 0 1 8 36Z" fill="currentColor" />
                <path
                    d="M46 14l66-10M46 36h66M46 58l66 10"
                    stroke="currentColor"
                    stroke-width="3"
                    stroke-linecap="round"
                    stroke-dasharray="1 9"
                    opacity=".6"
                />
            </svg>
            {error ? (
                <>
                    <h1>This report cannot be read</h1>
                    <p>{error}</p>
                    <p>The file may be incomplete, or from another version. Write the report again.</p>
                </>
            ) : (
                <>
                    <h1>This file has no data</h1>
                    <p>This is the page without data. Write a report to fill it:</p>
                </>
            )}
            <pre>
                {
                    "headlight measure MODEL TEXT -o model.profile\nheadlight report model.profile -o report.html"
                }
            </pre>
        </main>
    );
}
