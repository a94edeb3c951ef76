// Commands for a shell, a script or a job that do the same as the page.

const RESERVED = /^(y|n|yes|no|on|off|true|false|null|~)$/i;

/** Groups of `{title, commands: [{label, text}]}` for a dataset; `version` is null for the newest. */
export function commandsOf({ name, url, version, filename, hasToken }) {
  const place = `${url}/datasets/${name}`;
  const source = version === null ? place : `"${place}?version=${version}"`;
  const who = hasToken ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const chosen = version === null ? "" : `, version=${version}`;
  return [
    {
      title: "curl",
      commands: [
        { label: "Download", text: `curl -fLOJ${who} ${source}` },
        {
          label: "Upload a file",
          text:
            `curl -f${who} -T ${quoted(filename)} -H "Content-Type: application/octet-stream" \\\n` +
            `  -H ${quoted(disposition(filename))} ${place}`,
        },
        {
          label: "Upload a folder",
          text: `tar c -C my_folder . | curl -f${who} -T - -H "Content-Type: application/x-tar" ${place}`,
        },
      ],
    },
    {
      title: "Python",
      commands: [
        {
          label: "Download",
          text: `from imagestrata import hub\n\nhub.connect("${url}").pull("${name}", "/datasets"${chosen})`,
        },
        { label: "Upload", text: `from imagestrata import hub\n\nhub.connect("${url}").push("my_folder", name="${name}")` },
      ],
    },
    {
      title: "Shell",
      commands: [
        {
          label: "Download",
          text: `imagestrata pull ${name} /datasets --url ${url}${version === null ? "" : ` --version ${version}`}`,
        },
        { label: "Upload", text: `imagestrata push my_folder --name ${name} --url ${url}` },
      ],
    },
    { title: "Job", commands: [{ label: `The dataset is at /datasets/${name} on each worker`, text: job(name) }] },
  ];
}

function quoted(text) {
  return /^[A-Za-z0-9._-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Headers are ASCII: other letters are escaped. */
function disposition(filename) {
  const plain = /^[\x20-\x7e]*$/.test(filename);
  const name = plain ? `filename="${filename.replace(/["\\]/g, "\\$&")}"` : `filename*=UTF-8''${encodeURIComponent(filename)}`;
  return `Content-Disposition: attachment; ${name}`;
}

function job(name) {
  const plain = /^[A-Za-z][A-Za-z0-9_-]*$/.test(name) && !RESERVED.test(name);
  // Names of jobs begin with a letter and have at most 50 lowercase letters, digits and dashes.
  const label = `train-${name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`.slice(0, 50).replace(/-+$/, "");
  return `apiVersion: "breezeml.ai/v1"
kind: TrainingJob
metadata:
  name: ${label}
spec:
  minSize: 1
  maxSize: 3
  dataset: ${plain ? name : JSON.stringify(name)}
  replicaSpecs:
    template:
      spec:
        containers:
          - name: trainingjob
            image: my-registry/my-training
            command: ["python", "-u", "main.py"]
`;
}
