{{/* Every name of the chart's objects. Nothing else builds a name. */}}

{{- define "runyard.operator.name" -}}{{ .Release.Name }}-operator{{- end }}
{{- define "runyard.gateway.name" -}}{{ .Release.Name }}-gateway{{- end }}
{{- define "runyard.postgres.name" -}}{{ .Release.Name }}-postgres{{- end }}
{{- define "runyard.keysJob.name" -}}{{ .Release.Name }}-keys{{- end }}
{{- define "runyard.migration.name" -}}{{ .Release.Name }}-migration{{- end }}
{{- define "runyard.defaultDeny.name" -}}{{ .Release.Name }}-default-deny{{- end }}
{{- define "runyard.agentPods.name" -}}{{ .Release.Name }}-agent-pods{{- end }}
{{- define "runyard.cleanup.name" -}}{{ .Release.Name }}-cleanup{{- end }}

{{- define "runyard.alerts.name" -}}{{ .Release.Name }}-alerts{{- end }}
{{- define "runyard.dashboard.name" -}}{{ .Release.Name }}-dashboard{{- end }}

{{- define "runyard.agents.namespace" -}}{{ .Values.namespaces.agents | default (printf "%s-agents" .Release.Name) }}{{- end }}
{{- define "runyard.sandboxes.namespace" -}}{{ .Values.namespaces.sandboxes | default (printf "%s-sandboxes" .Release.Name) }}{{- end }}

{{/* Secrets made at run time by the keys Job and the migration Job; never by a template. */}}
{{- define "runyard.keys.secret" -}}{{ .Release.Name }}-keys{{- end }}
{{- define "runyard.apiKey.secret" -}}{{ .Release.Name }}-api-key{{- end }}
{{- define "runyard.database.secret" -}}{{ .Release.Name }}-database{{- end }}
{{- define "runyard.databaseOwner.secret" -}}{{ .Release.Name }}-database-owner{{- end }}
{{- define "runyard.agentDatabase.secret" -}}{{ .Release.Name }}-runtime-database{{- end }}

{{- define "runyard.postgres.host" -}}{{ include "runyard.postgres.name" . }}.{{ .Release.Namespace }}.svc{{- end }}

{{/* (dict "root" $ "name" "operator") -> the image's full name */}}
{{- define "runyard.image" -}}
{{ .root.Values.images.prefix }}{{ .name }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end }}
