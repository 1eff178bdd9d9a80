{{/* (dict "root" $ "component" "operator") -> the labels that selectors use; they never change. */}}
{{- define "runyard.selector" -}}
app.kubernetes.io/name: runyard
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "runyard.labels" -}}
{{ include "runyard.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}
